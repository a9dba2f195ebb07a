package role

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
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
)

// Lease is how long a dead process is still considered alive, unless another one takes its place.
const Lease = 5 * time.Second

// etcdWait is the default time that a role waits for etcd.
const etcdWait = 5 * time.Second

// Grace periods of the conductor: guesses, long where waiting costs little.
const (
	StartGrace  = 60 * time.Second // for workers at the start, which may be opening data
	RejoinGrace = 5 * time.Second  // for workers to return after a restore
	LeaveGrace  = time.Second      // for a worker to return after its stream broke
)

// Process is the process of one role of a cluster.
type Process struct {
	job.Settings
	Config  string
	Etcd    []string
	Run     string
	Store   string
	Index   int  // place in the run; if Any, only once it has been taken
	Any     bool // it takes any place that is empty
	Listen  string
	Reached string // --advertise
	Control string
	Outside string
	Price   string

	EndWithRun bool
	EtcdWait   time.Duration

	Notices
	job.Security

	Flags *pflag.FlagSet
	log   *slog.Logger
	Creds *mtls.Credentials // nil: plain TCP

	rank *localRank // if Any, and if this host can keep one

	handOver atomic.Pointer[func(context.Context, notice.Notice)] // what to do after a notice; nil: nothing
	noticed  atomic.Bool                                          // it has had a notice
	hung     chan error                                           // why a call to a GPU does not return
	over     atomic.Bool                                          // the run is over, so a restart would be useless
}

const storeDefault = "checkpoints"

// register adds the flags that all roles share.
func (p *Process) register(f *pflag.FlagSet) {
	p.Settings.Register(f)
	p.Notices.Register(f)
	p.Security.Register(f)
	f.StringVar(&p.Config, "config", "", "YAML file of settings; flags override it")
	f.StringSliceVar(&p.Etcd, "etcd", []string{"127.0.0.1:2379"}, "addresses of etcd")
	f.DurationVar(&p.EtcdWait, "etcd-wait", etcdWait, "how long to wait for etcd at the start; give more if everything is started at once")
	f.StringVar(&p.Run, "run", "default", "name of the run in etcd")
	f.StringVar(&p.Store, "store", storeDefault, "folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix?account=NAME for checkpoints, the same for all servers and the coordinator; keys come from the environment")
	p.Flags = f
}

// Command returns the command of a role. run does the work of the role.
func Command(use, short, example string, more func(*Process, *pflag.FlagSet), run func(context.Context, *Process) error) *cobra.Command {
	p := &Process{hung: make(chan error, 1)}
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: job.ProgramAfterDash,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := p.Flags.Changed("device") // set on the command line; the value in the file is for workers
			device := own && !p.Flags.Changed("server-device")
			if err := job.Load(p.Flags, p.Config); err != nil {
				return err
			}
			p.Store = cmp.Or(p.Store, storeDefault) // an empty store in the settings of a train run means its folder
			if device && use == "server" {          // the server's own device, not that of the workers in the file
				p.ServerDevice = p.Device
			}
			p.Elsewhere.Gradients, p.Elsewhere.Steps = use != "worker" && !own, use != "server"
			if err := p.Check(); err != nil {
				return err
			}
			if f := p.Flags.Lookup("index"); f != nil && !f.Changed { // two processes without --index would be taken for two lives of one place
				return fmt.Errorf("%w: --index is missing: give this %s its place in the run, which no other %s has, or auto", kintsugi.ErrUsage, use, use)
			}
			if p.EtcdWait <= 0 {
				return fmt.Errorf("%w: --etcd-wait %v must be positive", kintsugi.ErrUsage, p.EtcdWait)
			}
			var err error
			if p.log, err = cli.NewLog(cli.Stderr, p.LogLevel, cli.OnTerminal()); err != nil {
				return err
			}
			if err := p.CheckNotices(p.Warning); err != nil {
				return err
			}
			role := mtls.Role(use)
			if use == "monitor" {
				role = mtls.Operator
			}
			if p.Creds, err = p.Credentials(cmd.Context(), role, p.whichPlace(), p.log); err != nil {
				return err
			}
			BoundGarbage()
			return p.untilNotice(cmd.Context(), run)
		},
	}
	p.register(cmd.Flags())
	if more != nil {
		more(p, cmd.Flags())
	}
	return cmd
}

func withIndex(what string) func(*Process, *pflag.FlagSet) {
	return func(p *Process, f *pflag.FlagSet) {
		f.Var((*indexFlag)(p), "index", "place of this "+what+" in the run, from 0, different for each; or auto: any that is empty, now or later; required")
		if what == "server" {
			f.StringVar(&p.Listen, "listen", "127.0.0.1:0", "host:port to serve on; workers and servers must reach it, unless --advertise says otherwise")
			f.StringVar(&p.Reached, "advertise", "", "host or host:port at which workers, servers and the coordinator reach this server, if that is not --listen: behind NAT, or in a container whose port is published (default: --listen)")
			f.StringVar(&p.Price, "price", "", "price of nodes, for --recovery auto: "+cost.Forms)
			p.endsWithRun(f)
			f.StringVar(&p.Outside, "outside", "", "file in memory (such as on a tmpfs) that keeps the shard when this process dies (default: none)")
		}
		f.StringVar(&p.Control, "control", "", "folder where a launcher leaves messages for this "+what)
	}
}

// place takes the place of --index, if it is one of n.
func (p *Process) place(what string, n int) error {
	if p.Any {
		return p.takeRank(what)
	}
	if p.Index < 0 || p.Index >= n {
		return fmt.Errorf("%w: --index %d: the run has %d %ss, numbered from 0", kintsugi.ErrUsage, p.Index, n, what)
	}
	p.Place = p.Index
	return nil
}

// leave gives up a place, so that nobody waits for the lease. After a notice it says so, since
// others cannot see the exit status.
func (p *Process) leave(r *etcd.Registration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.noticed.Load() && !p.over.Load() {
		_ = r.Leave(ctx)
		return
	}
	_ = r.Close(ctx) // if this fails, the lease lapses
}

// deaths prepares the deaths that a fault has ordered for this process, if there is a launcher.
func (p *Process) deaths(role launch.Role) (enter func(state string), err error) {
	if p.Control == "" {
		return func(string) {}, nil
	}
	if p.Any {
		return nil, fmt.Errorf("%w: --control is for processes with a number: a launcher would not know which place --index auto takes", kintsugi.ErrUsage)
	}
	return launch.Deaths(p.Control, launch.Part{Role: role, Index: p.Index}, func() error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}
