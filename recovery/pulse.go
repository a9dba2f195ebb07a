package recovery

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

// A lease shows that a server is gone only seconds after its death. That is too long if other
// servers hold its shards, so the coordinator feels the pulse of each server itself. A broken
// connection does not mean death. If nobody listens at the server's address any more, or it stays
// silent, it counts as dead.
const (
	pulseEvery = 150 * time.Millisecond // between two pings of a server that answers
	answerTime = 700 * time.Millisecond // for one answer
	silences   = 3                      // missing answers in a row; more than one, since this process may have been asleep itself
)

// sign reports that the pulse of a life has begun or stopped.
type sign struct {
	server kintsugi.ServerID
	life   kintsugi.Incarnation
	alive  bool
}

// pulses feels the pulses of servers. Only the loop that owns it may call its methods.
type pulses struct {
	tls   *mtls.Credentials // nil: plain TCP
	signs chan sign
	wg    sync.WaitGroup
	stops map[kintsugi.ServerID]pulse
}

type pulse struct {
	life   kintsugi.Incarnation
	cancel context.CancelFunc
}

func newPulses(tls *mtls.Credentials) *pulses {
	return &pulses{tls: tls, signs: make(chan sign), stops: make(map[kintsugi.ServerID]pulse)}
}

// feel starts to feel the pulse of a life of a server, and stops for its earlier life.
func (p *pulses) feel(ctx context.Context, j roster.Joined) {
	id, life := j.Member.Server, j.Member.Incarnation
	if p.stops[id].life == life {
		return
	}
	p.end(id)
	ctx, cancel := context.WithCancel(ctx)
	p.stops[id] = pulse{life: life, cancel: cancel}
	p.wg.Go(func() {
		for alive := true; ctx.Err() == nil; {
			now := p.lives(ctx, j.Member, alive)
			if now != alive && ctx.Err() == nil {
				alive = now
				select {
				case p.signs <- sign{id, life, alive}:
				case <-ctx.Done():
				}
			}
		}
	})
}

// end stops feeling the pulse of a server.
func (p *pulses) end(id kintsugi.ServerID) {
	if x, ok := p.stops[id]; ok {
		x.cancel()
		delete(p.stops, id)
	}
}

// close stops for all servers and waits until their goroutines have ended.
func (p *pulses) close() {
	for id := range p.stops {
		p.end(id)
	}
	p.wg.Wait()
}

// lives pings a server until the answer to whether it lives differs from known, and returns the new
// answer. It returns at once when the connection breaks and nobody listens at the address any more.
func (p *pulses) lives(ctx context.Context, m kintsugi.Member, known bool) bool {
	peer, err := transport.Dial(m.Address, transport.DialTLS(p.tls, m.Server))
	if err != nil {
		return false
	}
	defer peer.Close()
	for silent := 0; ctx.Err() == nil; {
		err := peer.Ping(ctx, answerTime)
		switch {
		case err == nil && !known:
			return true
		case err == nil:
			silent = 0
			peer.UntilBroken(ctx, pulseEvery)
		case gone(ctx, m.Address):
			if known {
				return false
			}
			rest(ctx, pulseEvery)
		case peer.Refused(): // it answers; this process has no valid certificate
			silent = 0
			rest(ctx, pulseEvery)
		default:
			if silent++; silent >= silences && known {
				return false
			}
			if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				rest(ctx, pulseEvery) // it answered, or the connection broke: ask again, but not at once
			}
		}
	}
	return known
}

// gone reports whether nobody listens at an address.
func gone(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
