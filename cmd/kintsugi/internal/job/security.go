package job

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// Security is the setting for authentication: see docs/security.md.
type Security struct {
	TLS string
}

// TLSFlag is the name of the flag for credentials.
const TLSFlag = "tls"

// Register adds the flag of the credentials.
func (s *Security) Register(f *pflag.FlagSet) {
	f.StringVar(&s.TLS, TLSFlag, "", "folder with ca.pem, cert.pem and key.pem, or one that kintsugi certs has filled; all connections then use TLS, and both sides prove who they are (default: plain TCP, without proof)")
}

// Credentials returns the credentials of a process with the given role and, if the role has places,
// place. Without --tls it returns nil. Until ctx ends, a warning is logged when the certificate is
// about to expire.
func (s *Security) Credentials(ctx context.Context, role mtls.Role, index int, log *slog.Logger) (*mtls.Credentials, error) {
	if s.TLS == "" {
		return nil, nil
	}
	if role != mtls.Server && role != mtls.Worker {
		index = mtls.Any
	}
	c, err := mtls.Open(s.TLS, role, index, log)
	if err != nil {
		return nil, err
	}
	go c.Watch(ctx)
	return c, nil
}

// DialEtcd returns a client of a run once an etcd answers, which the caller closes: see [etcd.Dial]. Passwords
// would be seen by everybody on a command line, so a user of etcd is named by the environment alone.
func DialEtcd(ctx context.Context, endpoints []string, run string, opts ...etcd.DialOption) (*etcd.Client, error) {
	user, password := os.Getenv("KINTSUGI_ETCD_USER"), os.Getenv("KINTSUGI_ETCD_PASSWORD")
	if (user == "") != (password == "") {
		return nil, fmt.Errorf("%w: of $KINTSUGI_ETCD_USER and $KINTSUGI_ETCD_PASSWORD, set both or neither", kintsugi.ErrUsage)
	}
	return etcd.Dial(ctx, endpoints, run, append(opts, etcd.WithLogin(user, password))...)
}
