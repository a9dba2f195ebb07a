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

// A lease says that a server is gone seconds after its death. Where others hold its shards that is
// too long: so the coordinator feels the pulse of each server itself. A connection that breaks is
// not a death; that nobody listens at its address any more is one, and so is silence.
const (
	pulseEvery = 150 * time.Millisecond // between two questions to a server that answers
	answerTime = 700 * time.Millisecond // for one answer
	silences   = 3                      // answers in a row that do not come: more than one, since this process may have been asleep itself
)

// sign is what the pulse of a life says when that changes.
type sign struct {
	server kintsugi.ServerID
	life   kintsugi.Incarnation
	alive  bool
}

// pulses feels the pulse of servers. Only the loop that owns it calls its methods.
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

// feel begins with a life of a server, and ends with an earlier one.
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

// end ends with a server.
func (p *pulses) end(id kintsugi.ServerID) {
	if x, ok := p.stops[id]; ok {
		x.cancel()
		delete(p.stops, id)
	}
}

// close ends with all of them and waits until nobody feels any more.
func (p *pulses) close() {
	for id := range p.stops {
		p.end(id)
	}
	p.wg.Wait()
}

// lives asks a server until what it says of itself is no longer what was known: whether it lives.
// It returns at once when the connection to it breaks and nobody listens there any more.
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
		case peer.Refused(): // it answers, and it is this process that has no valid certificate
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
