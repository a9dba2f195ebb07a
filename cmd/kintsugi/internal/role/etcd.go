package role

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// EtcdCommand returns the command of an etcd.
func EtcdCommand() *cobra.Command {
	var among etcd.Ensemble
	var peers []string
	dir, level := "", ""
	var secured job.Security
	cmd := &cobra.Command{
		Use: "etcd", Short: "Run an etcd for the other commands, if you have none",
		Long: "Etcd runs an etcd, alone or as one of several on hosts of their own that hold the same keys: of three one may be gone, of five two.\n" +
			"Start all with the same --peer flags. It is ready once most of them are there. Without --tls nothing is encrypted and anybody\n" +
			"is let in: it then belongs in the network of the run.",
		Example: "  kintsugi etcd --name a --listen 10.0.0.1:2379 --peer a=10.0.0.1:2380 --peer b=10.0.0.2:2380 --peer c=10.0.0.3:2380 --dir /var/lib/kintsugi-etcd\n" +
			"  kintsugi etcd --listen 10.0.0.1:2379 --peer a=10.0.0.1:2380 --dir /var/lib/kintsugi-etcd --tls /etc/kintsugi",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := job.FromEnvironment(cmd.Flags(), job.TLSFlag)
			if err != nil {
				return err
			}
			if among.Peers, err = parsePeers(peers); err != nil {
				return err
			}
			if err := among.Check(); err != nil {
				return err
			}
			if dir == "" {
				return fmt.Errorf("%w: --dir is needed: a folder of its own, that outlives the process", kintsugi.ErrUsage)
			}
			log, err := cli.NewLog(cmd.ErrOrStderr(), level, cli.OnTerminal())
			if err != nil {
				return err
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer cancel()
			tls, err := secured.Credentials(ctx, mtls.Etcd, mtls.Any, log)
			if err != nil {
				return err
			}
			// The library's members would connect through the web proxy that the environment names.
			if err := os.Setenv("NO_PROXY", "*"); err != nil {
				return err
			}
			e, err := etcd.Embed(ctx, dir, etcd.Options{Log: log, Among: &among, TLS: tls})
			if ctx.Err() != nil {
				return nil // asked to end before most members had started
			}
			if err != nil {
				return err
			}
			defer e.Close()
			fmt.Fprintf(cmd.OutOrStdout(), "ready: --etcd %s\n", e.Endpoint())
			select {
			case <-ctx.Done():
				return nil
			case err := <-e.Failed():
				return err
			}
		},
	}
	f := cmd.Flags()
	secured.Register(f)
	f.StringVar(&among.Name, "name", "a", "name of this etcd among the peers")
	f.StringVar(&among.Listen, "listen", "127.0.0.1:2379", "address for clients")
	f.StringArrayVar(&peers, "peer", []string{"a=127.0.0.1:2380"}, "an etcd and the address at which the others reach it, NAME=HOST:PORT; repeat for each, this one included. Without it, this etcd is alone")
	f.DurationVar(&among.Beat, "beat", 100*time.Millisecond, "time between two signs of life among several etcds; if ten are missing, another one leads")
	f.StringVar(&dir, "dir", "", "folder for its data")
	f.StringVar(&level, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

// parsePeers parses a list of NAME=HOST:PORT.
func parsePeers(list []string) (map[string]string, error) {
	peers := make(map[string]string)
	for _, p := range list {
		name, address, ok := strings.Cut(p, "=")
		if _, twice := peers[name]; !ok || twice {
			return nil, fmt.Errorf("%w: --peer %q: use NAME=HOST:PORT, once for each etcd", kintsugi.ErrUsage, p)
		}
		peers[name] = address
	}
	return peers, nil
}
