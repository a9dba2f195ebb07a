package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/server/reach"
)

const (
	tryEvery = time.Second // to reach a server
	tryTime  = time.Second // for its answer
)

// company is what a server knows of those that it has to reach. One goroutine owns it.
type company struct {
	core  reach.State
	links []kintsugi.Life          // without whose answers steps stand
	where map[kintsugi.Life]string // addresses of the lives of the newest view
	asks  asker
}

// asker asks others for signs of life.
type asker interface {
	// ask returns an error if a life does not answer in time. Several may be asked at once.
	ask(ctx context.Context, whom kintsugi.Life, address string) error
	// keep gives up what is there for all others.
	keep(whom []kintsugi.Life)
}

// links returns the others without whose answers to a server steps of a view stand: who is before
// it in chains, unless replicas have copies, and if it conducts, the heads.
func links(v kintsugi.View, self kintsugi.Life, copies bool) (list []kintsugi.Life) {
	if int(self.Server) >= len(v.Servers) || v.Servers[self.Server].Life() != self {
		return nil
	}
	add := func(id kintsugi.ServerID) {
		if l := v.Servers[id].Life(); l != self && !slices.Contains(list, l) {
			list = append(list, l)
		}
	}
	for _, chain := range v.Chains {
		if v.Conductor == self.Server {
			add(chain[0])
		}
		if at := slices.Index(chain, self.Server); at > 0 && !copies {
			add(chain[at-1])
		}
	}
	return list
}

// meet tells which lives are apart from this one, whenever that changes, until ctx ends. It asks
// those that are too whether they are still: the view that leaves one of the two out has nobody
// else who would.
func (s *Server) meet(ctx context.Context, asks asker) {
	c := company{asks: asks}
	defer asks.keep(nil)
	self := kintsugi.Life{Server: s.cfg.ID, Incarnation: s.cfg.Incarnation}
	tick := time.NewTicker(tryEvery)
	defer tick.Stop()
	var told []kintsugi.Life
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case v := <-s.entered:
			c.enter(v, links(v, self, s.cfg.CopyEvery > 0))
		default:
		}
		c.visit(ctx)
		list := c.core.Apart()
		if ctx.Err() != nil || slices.Equal(list, told) {
			continue
		}
		if err := s.cfg.Apart(ctx, list); err != nil {
			s.cfg.Log.Warn("say which servers are not reached", "err", err)
			continue
		}
		told = list
		s.cfg.Log.Warn("the servers that are not reached have changed: a view leaves one of two out as soon as it can be spared", "not_reached", names(list))
	}
}

// names returns the names of the servers.
func names(lives []kintsugi.Life) []string {
	list := []string{}
	for _, l := range lives {
		list = append(list, fmt.Sprintf("server/%d", l.Server))
	}
	return list
}

// enter notes a view. The lives that it does not have in their places are over.
func (c *company) enter(v kintsugi.View, links []kintsugi.Life) {
	c.links, c.where = links, make(map[kintsugi.Life]string)
	for _, m := range v.Servers {
		c.where[m.Life()] = m.Address
	}
	c.core.Forget(func(l kintsugi.Life) bool { return c.where[l] == "" })
}

// visit asks each of those that are to be reached, all at once.
func (c *company) visit(ctx context.Context) {
	whom := slices.Clone(c.links)
	for _, l := range c.core.Apart() {
		if !slices.Contains(whom, l) {
			whom = append(whom, l)
		}
	}
	c.asks.keep(whom)
	answers := make([]bool, len(whom))
	var wg sync.WaitGroup
	for i, l := range whom {
		wg.Go(func() { answers[i] = c.asks.ask(ctx, l, c.where[l]) == nil })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	for i, l := range whom {
		c.core.Tried(now, l, answers[i])
	}
}

// pings asks over connections that stay.
type pings struct {
	tls *mtls.Credentials

	mu    sync.Mutex
	peers map[kintsugi.Life]*transport.Peer
}

func newPings(tls *mtls.Credentials) *pings {
	return &pings{tls: tls, peers: make(map[kintsugi.Life]*transport.Peer)}
}

func (p *pings) ask(ctx context.Context, whom kintsugi.Life, address string) error {
	p.mu.Lock()
	peer := p.peers[whom]
	if peer == nil {
		var err error
		if peer, err = transport.Dial(address, transport.DialTLS(p.tls, whom.Server)); err != nil {
			p.mu.Unlock()
			return err
		}
		p.peers[whom] = peer
	}
	p.mu.Unlock()
	return peer.Ping(ctx, tryTime)
}

func (p *pings) keep(whom []kintsugi.Life) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, peer := range p.peers {
		if !slices.Contains(whom, l) {
			_ = peer.Close()
			delete(p.peers, l)
		}
	}
}
