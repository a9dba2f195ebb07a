package role

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// MemoryCommand returns the command of a process that keeps checkpoints in its memory.
func MemoryCommand() *cobra.Command {
	var listen, limit string
	var secured job.Security
	cmd := &cobra.Command{
		Use: "memory", Short: "Keep checkpoints in the memory of this process, for --store memory://HOST:PORT/NAME",
		Long: "Memory keeps checkpoints of runs in the memory of this process. On a host other than those of a run's servers, it takes their\n" +
			"running checkpoint at the speed of the network and gives it back when one of them dies. Without --tls it lets anybody in. What it\n" +
			"holds is gone when it ends.",
		Example: "  kintsugi memory --listen 10.0.0.9:9400 --limit 8GB\n  kintsugi memory --listen 10.0.0.9:9400 --tls /etc/kintsugi",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := job.FromEnvironment(cmd.Flags(), job.TLSFlag); err != nil {
				return err
			}
			bytes, err := parseBytes(limit)
			if err != nil {
				return fmt.Errorf("--limit: %w", err)
			}
			if _, err := checkHostPort(listen); err != nil { // without a host and port, the library would listen on any port of all addresses
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen %s: %w", listen, err)
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer cancel()
			log, err := cli.NewLog(cmd.ErrOrStderr(), "warn", cli.OnTerminal())
			if err != nil {
				return errors.Join(err, l.Close())
			}
			c, err := secured.Credentials(ctx, mtls.Memory, mtls.Any, log)
			if err != nil {
				return errors.Join(err, l.Close())
			}
			if c != nil {
				l = tls.NewListener(l, c.ServerConfig(mtls.Server, mtls.Coordinator, mtls.Operator))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "keeps up to %s: --store %s%s/NAME\n", limit, object.MemoryScheme, l.Addr())
			return serveMemory(ctx, l, object.NewKeeper(bytes))
		},
	}
	secured.Register(cmd.Flags())
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9400", "address to listen on; a port of 0 takes a free one")
	cmd.Flags().StringVar(&limit, "limit", "1GB", "most bytes of checkpoints, in kB, MB or GB; more is refused")
	return cmd
}

// serveMemory serves k until ctx ends.
func serveMemory(ctx context.Context, l net.Listener, k *object.Keeper) error {
	s := &http.Server{Handler: k, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // ends requests too: their clients try again later or elsewhere
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve memory at %s: %w", l.Addr(), err)
	}
	return nil
}

// parseBytes parses a size such as 8GB. Other text, or less than a byte, is an ErrUsage.
func parseBytes(s string) (int64, error) {
	rate, err := job.ParseLimit(s + "/s")
	if err != nil || s == "" || strings.HasSuffix(s, "/s") || rate > 1<<60 {
		return 0, fmt.Errorf("%w: %s is no size; use one such as 500MB or 8GB", kintsugi.ErrUsage, strconv.Quote(s))
	}
	return int64(rate), nil
}
