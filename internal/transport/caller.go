package transport

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// admit checks whether the role of a caller may open a stream. It returns the place that the
// caller's certificate proves. It returns nil if the certificate is for all places of its role, or
// if there is no TLS.
func admit(ctx context.Context, stream string, may []mtls.Role) (*mtls.Name, error) {
	who, secured := mtls.Caller(ctx)
	switch {
	case !secured:
		return nil, nil
	case !slices.Contains(may, who.Role):
		return nil, status.Errorf(codes.PermissionDenied, "%v may not open %s, which is for %v", who, stream, may)
	case who.Index == mtls.Any:
		return nil, nil
	}
	return &who, nil
}

// speaksAs returns an error if a message claims to come from another place than its sender's.
func speaksAs(from *mtls.Name, message any) error {
	said := mtls.Name{Role: mtls.Worker}
	switch m := message.(type) {
	case kintsugi.Hello:
		said.Index = int(m.Slot)
	case kintsugi.Ticket:
		said.Index = int(m.Push.Slot)
	case *Frame:
		said.Index = int(m.Push.Slot)
	case kintsugi.Follow:
		said.Role, said.Index = mtls.Server, int(m.Server)
	default:
		return nil
	}
	if said.Role != from.Role || said.Index != from.Index {
		return status.Errorf(codes.PermissionDenied, "%v speaks as %v, for which it has no certificate", from, said)
	}
	return nil
}
