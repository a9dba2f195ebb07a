package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Ping asks the peer for a sign of life. Whether it is ready to serve does not matter. It returns
// an error when the peer does not answer within patience; that is context.DeadlineExceeded if it is
// reached but silent.
func (p *Peer) Ping(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := healthpb.NewHealthClient(p.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// UntilBroken returns when the connection to the peer is broken, or after d, or when ctx ends.
func (p *Peer) UntilBroken(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	p.conn.WaitForStateChange(ctx, connectivity.Ready)
}
