package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
)

// lease is how long a dead process is still considered alive, unless another one takes its place.
const lease = 5 * time.Second

// etcdWait is the default time that a role waits for etcd.
const etcdWait = 5 * time.Second

// Grace periods of the conductor: guesses, long where waiting costs little.
const (
	startGrace  = 60 * time.Second // for workers at the start, which may be opening data
	rejoinGrace = 5 * time.Second  // for workers to return after a restore
	leaveGrace  = time.Second      // for a worker to return after its stream broke
)

// process is the process of one role of a cluster.
type process struct {
	settings
	Config  string
	Etcd    []string
	Run     string
	Store   string
	Index   int
	Listen  string
	Control string
	Outside string
	Price   string

	EndWithRun bool
	EtcdWait   time.Duration

	notices
	security

	flags *pflag.FlagSet
	log   *slog.Logger
	tls   *mtls.Credentials // nil: plain TCP

	handOver atomic.Pointer[func(context.Context, notice.Notice)] // what to do after a notice; nil: nothing
	noticed  atomic.Bool                                          // it has had a notice
	over     atomic.Bool                                          // the run is over, so a restart would be useless
}

const storeDefault = "checkpoints"

// register adds the flags that all roles share.
func (p *process) register(f *pflag.FlagSet) {
	p.settings.register(f)
	p.notices.register(f)
	p.security.register(f)
	f.StringVar(&p.Config, "config", "", "YAML file of settings; flags override it")
	f.StringSliceVar(&p.Etcd, "etcd", []string{"127.0.0.1:2379"}, "addresses of etcd")
	f.DurationVar(&p.EtcdWait, "etcd-wait", etcdWait, "how long to wait for etcd at the start; give more if everything is started at once")
	f.StringVar(&p.Run, "run", "default", "name of the run in etcd")
	f.StringVar(&p.Store, "store", storeDefault, "folder or s3://bucket/prefix?endpoint=URL for checkpoints, the same for all servers and the coordinator; keys come from the environment")
	p.flags = f
}

// roleCommand returns the command of a role. run does the work of the role.
func roleCommand(use, short, example string, more func(*process, *pflag.FlagSet), run func(context.Context, *process) error) *cobra.Command {
	p := &process{}
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: programAfterDash,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := p.flags.Changed("device") // set on the command line; the value in the file is for workers
			device := own && !p.flags.Changed("server-device")
			if err := load(p.flags, p.Config); err != nil {
				return err
			}
			p.Store = cmp.Or(p.Store, storeDefault) // an empty store in the settings of a train run means its folder
			if device && use == "server" {          // the server's own device, not that of the workers in the file
				p.ServerDevice = p.Device
			}
			p.elsewhere.gradients, p.elsewhere.steps = use != "worker" && !own, use != "server"
			if err := p.check(); err != nil {
				return err
			}
			if f := p.flags.Lookup("index"); f != nil && !f.Changed { // two processes without --index would be taken for two lives of one place
				return fmt.Errorf("%w: --index is missing: give this %s its place in the run, which no other %s has", kintsugi.ErrUsage, use, use)
			}
			if p.EtcdWait <= 0 {
				return fmt.Errorf("%w: --etcd-wait %v must be positive", kintsugi.ErrUsage, p.EtcdWait)
			}
			var err error
			if p.log, err = newLog(os.Stderr, p.LogLevel, onTerminal()); err != nil {
				return err
			}
			if err := p.checkNotices(p.Warning); err != nil {
				return err
			}
			role := mtls.Role(use)
			if use == "monitor" {
				role = mtls.Operator
			}
			if p.tls, err = p.credentials(cmd.Context(), role, p.Index, p.log); err != nil {
				return err
			}
			boundGarbage()
			return p.untilNotice(cmd.Context(), run)
		},
	}
	p.register(cmd.Flags())
	if more != nil {
		more(p, cmd.Flags())
	}
	return cmd
}

func withIndex(what string) func(*process, *pflag.FlagSet) {
	return func(p *process, f *pflag.FlagSet) {
		f.IntVar(&p.Index, "index", 0, "place of this "+what+" in the run, from 0; required, and different for each")
		if what == "server" {
			f.StringVar(&p.Listen, "listen", "127.0.0.1:0", "host:port to serve on; workers and servers must reach it")
			f.StringVar(&p.Price, "price", "", "price of nodes, for --recovery auto: "+cost.Forms)
			p.endsWithRun(f)
			f.StringVar(&p.Outside, "outside", "", "file in memory (such as on a tmpfs) that keeps the shard when this process dies (default: none)")
		}
		f.StringVar(&p.Control, "control", "", "folder where a launcher leaves messages for this "+what)
	}
}

// place checks --index against the number of places.
func (p *process) place(what string, n int) error {
	if p.Index < 0 || p.Index >= n {
		return fmt.Errorf("%w: --index %d: the run has %d %ss, numbered from 0", kintsugi.ErrUsage, p.Index, n, what)
	}
	return nil
}

// leave gives up a place, so that nobody waits for the lease. After a notice it says so, since
// others cannot see the exit status.
func (p *process) leave(r *etcd.Registration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.noticed.Load() && !p.over.Load() {
		_ = r.Leave(ctx)
		return
	}
	_ = r.Close(ctx) // if this fails, the lease lapses
}

// deaths prepares the deaths that a fault has ordered for this process, if there is a launcher.
func (p *process) deaths(role launch.Role) (enter func(state string), err error) {
	if p.Control == "" {
		return func(string) {}, nil
	}
	return launch.Deaths(p.Control, launch.Part{Role: role, Index: p.Index}, func() error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}
