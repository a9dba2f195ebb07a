package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// security is the setting for authentication: see docs/security.md.
type security struct {
	TLS string
}

const tlsFlag = "tls"

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

// checkSecurity checks, before anything is started, that every process will have its credentials.
func (t *training) checkSecurity() error {
	if t.TLS == "" {
		return nil
	}
	type process struct {
		role  mtls.Role
		index int
	}
	all := []process{{mtls.Operator, mtls.Any}, {mtls.Coordinator, mtls.Any}}
	if len(t.Etcd) == 0 {
		all = append(all, process{mtls.Etcd, mtls.Any})
	}
	for i := range t.Servers {
		all = append(all, process{mtls.Server, i})
	}
	for i := range t.Workers {
		all = append(all, process{mtls.Worker, i})
	}
	for _, p := range all {
		if _, err := mtls.Open(t.TLS, p.role, p.index, nil); err != nil {
			return err
		}
	}
	return nil
}

// place opens the store that --store names. Only the memory of another process requires
// credentials.
func (t *training) place(ctx context.Context, store string) (place, error) {
	if t.TLS != "" && t.tls == nil && strings.HasPrefix(store, object.MemoryScheme) {
		var err error
		if t.tls, err = mtls.Open(t.TLS, mtls.Operator, mtls.Any, nil); err != nil {
			return place{}, err
		}
	}
	return openPlace(ctx, store, t.tls)
}
