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
	tryEvery = time.Second // between two tries to reach a server
	tryTime  = time.Second // for its answer
)

// company is what a server knows of the servers that it must reach. One goroutine owns it.
type company struct {
	core  reach.State
	links []kintsugi.Life          // the lives whose answers steps depend on
	where map[kintsugi.Life]string // addresses of the lives of the newest view
	asks  asker
}

// asker asks other servers for signs of life.
type asker interface {
	// ask returns an error if a life does not answer in time. It may be called for several lives at
	// once.
	ask(ctx context.Context, whom kintsugi.Life, address string) error
	// keep closes the connections to all lives but these.
	keep(whom []kintsugi.Life)
}

// links returns the other lives whose answers to this server the steps of a view depend on: the
// replica before it in each chain, unless replicas have copies, and, if this server conducts, all
// heads.
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

// meet tells Config.Apart which lives are out of reach, whenever that changes, until ctx ends. It
// also goes on asking the lives that are out of reach: after a view has left out one of the two
// servers, nobody else asks whether they can reach each other again.
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

// enter notes a view. A life that is not in its place in the view is over.
func (c *company) enter(v kintsugi.View, links []kintsugi.Life) {
	c.links, c.where = links, make(map[kintsugi.Life]string)
	for _, m := range v.Servers {
		c.where[m.Life()] = m.Address
	}
	c.core.Forget(func(l kintsugi.Life) bool { return c.where[l] == "" })
}

// visit asks all lives that must be reached, at the same time.
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

// pings is an asker that keeps its connections.
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
