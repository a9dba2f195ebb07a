package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Ping checks that the peer's process answers, whether or not it is ready to serve. It returns an
// error if there is no answer within patience: context.DeadlineExceeded if the process can be
// reached but does not answer.
func (p *Peer) Ping(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := healthpb.NewHealthClient(p.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// UntilBroken returns when the connection to the peer is broken, after d, or when ctx ends.
func (p *Peer) UntilBroken(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	p.conn.WaitForStateChange(ctx, connectivity.Ready)
}
