package main

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// security is the setting for authentication: see docs/security.md.
type security struct {
	TLS string
}

// tlsFlag is the name of the flag for credentials.
const tlsFlag = "tls"

// register adds the flag of the credentials.
func (s *security) register(f *pflag.FlagSet) {
	f.StringVar(&s.TLS, tlsFlag, "", "folder with ca.pem, cert.pem and key.pem, or one that kintsugi certs has filled; all connections then use TLS, and both sides prove who they are (default: plain TCP, without proof)")
}

// credentials returns the credentials of a process with the given role and, if the role has places,
// place. Without --tls it returns nil. Until ctx ends, a warning is logged when the certificate is
// about to expire.
func (s *security) credentials(ctx context.Context, role mtls.Role, index int, log *slog.Logger) (*mtls.Credentials, error) {
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
