package job

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"

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
