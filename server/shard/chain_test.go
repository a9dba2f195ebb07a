package shard_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/script"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata")

// The stories of a chain: real conductors and replicas, with workers, on one queue of messages. A
// shard is one number that every step hashes, so that a gradient that is left out, or a step that
// is made twice, shows.

func TestChainStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/chain/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			w := &chains{t: t}
			script.Run(t, path, *update, w.command)
		})
	}
}

type chains struct {
	t        *testing.T
	clock    time.Time
	replicas int
	next     bool // the next replica answers for those behind it
	steps    kintsugi.Step
	hosts    []*host
	hands    []*hand
	view     kintsugi.View
	fence    kintsugi.Fence
	lives    kintsugi.Incarnation
	queue    []func()
	told     []string
	released map[kintsugi.Step][]kintsugi.Weighted // the pushes that each step of the line counts
	newest   kintsugi.Step
}

// host is a server.
type host struct {
	w         *chains
	id        kintsugi.ServerID
	life      kintsugi.Incarnation
	dead      bool
	deaf      bool // it stands still: messages to it wait
	waiting   []func()
	view      kintsugi.View
	nodes     map[kintsugi.ShardID]*node
	conductor *conductor.Conductor
	fence     kintsugi.Fence
	attempts  uint64 // attempts to follow a replica
}

// node is a replica of a shard in one view.
type node struct {
	h         *host
	id        kintsugi.ShardID
	core      *shard.Replica
	now, next uint64
	held      map[kintsugi.PushID]uint64
	sum       uint64   // of the newest update
	after     *node    // the next replica, while it is connected
	deaf      bool     // messages from its predecessor wait
	later     []func() // these messages
}

// hand is a worker: it pushes one gradient for each version.
type hand struct {
	slot    kintsugi.Slot
	life    kintsugi.Incarnation
	dead    bool
	view    kintsugi.ViewNumber
	version kintsugi.Step
	pushed  bool
}

func hash(h uint64, more ...uint64) uint64 {
	for _, x := range more {
		h ^= x + 0x9e3779b97f4a7c15 + h<<6 + h>>2
		h *= 0xff51afd7ed558ccd
		h ^= h >> 33
	}
	return h
}

func gradient(id kintsugi.ShardID, p kintsugi.PushID) uint64 {
	return hash(uint64(p.Slot), uint64(p.Version), uint64(id))
}

func (w *chains) say(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *chains) command(line string) string {
	w.told = nil
	var n, m, k, s int
	switch {
	case scan(strings.TrimSuffix(line, " next"), "run servers %d replicas %d workers %d steps %d", &n, &m, &k, &s):
		w.run(n, m, k, kintsugi.Step(s), strings.HasSuffix(line, " next"))
	case strings.HasPrefix(line, "until "):
		w.until(strings.TrimPrefix(line, "until "))
	case line == "settle":
		w.settle()
	case scan(line, "kill server/%d", &n):
		w.hosts[n].dead = true
	case scan(line, "kill worker/%d", &n):
		w.hands[n].dead = true
	case scan(line, "start worker/%d", &n):
		w.lives++
		w.hands[n] = &hand{slot: kintsugi.Slot(n), life: w.lives}
		w.hello(w.hands[n])
	case scan(line, "stop server/%d", &n):
		w.hosts[n].deaf = true
	case scan(line, "continue server/%d", &n):
		h := w.hosts[n]
		h.deaf = false
		w.queue = append(w.queue, h.waiting...)
		h.waiting = nil
	case scan(line, "hold shard %d on server/%d", &n, &m):
		w.hosts[m].nodes[kintsugi.ShardID(n)].deaf = true
	case scan(line, "let shard %d on server/%d go on", &n, &m):
		x := w.hosts[m].nodes[kintsugi.ShardID(n)]
		x.deaf = false
		x.hear()
	case scan(line, "start server/%d", &n):
		w.lives++
		w.hosts[n] = &host{w: w, id: kintsugi.ServerID(n), life: w.lives, nodes: make(map[kintsugi.ShardID]*node)}
	case scan(line, "later %ds", &n):
		w.clock = w.clock.Add(time.Duration(n) * time.Second)
		for _, h := range w.hosts {
			if h.conductor != nil && !h.dead && !h.deaf {
				h.conductor.Tick(w.clock)
				h.perform()
			}
		}
	case scan(line, "break worker/%d", &n): // its connection: the conductor takes it for gone
		c, x := w.hosts[w.view.Conductor], w.hands[n]
		c.conductor.WorkerGone(w.clock, x.slot, x.life)
		c.perform()
	case line == "view":
		w.nextView()
	default:
		w.t.Fatalf("unknown command %q", line)
	}
	return strings.Join(w.told, "\n")
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line+" .", format+" .", into...)
	return err == nil && n == len(into)
}

// until delivers messages until an event is reported that begins with prefix.
func (w *chains) until(prefix string) {
	for len(w.queue) > 0 {
		if slices.ContainsFunc(w.told, func(s string) bool { return strings.HasPrefix(s, prefix) }) {
			return
		}
		w.deliver()
	}
	w.t.Fatalf("%q never happens:\n%s", prefix, strings.Join(w.told, "\n"))
}

func (w *chains) settle() {
	for i := 0; len(w.queue) > 0; i++ {
		if i > 100_000 {
			w.t.Fatalf("it goes round and round:\n%s", strings.Join(w.told[len(w.told)-50:], "\n"))
		}
		w.deliver()
	}
	for _, h := range w.hosts {
		for _, n := range h.nodes {
			if !h.dead && h.view.Number == w.view.Number && (n.core.Released() != w.newest || !n.core.Whole()) {
				w.say("server/%d: shard %d stands at %d of %d, whole: %v", h.id, n.id, n.core.Released(), w.newest, n.core.Whole())
			}
		}
	}
}

func (w *chains) deliver() {
	f := w.queue[0]
	w.queue = w.queue[1:]
	f()
}

// to sends something to a host. It is lost unless the host is still in the view in which it was
// sent.
func (w *chains) to(h *host, do func()) {
	view := h.view.Number
	var arrive func()
	arrive = func() {
		if h.deaf {
			h.waiting = append(h.waiting, arrive)
			return
		}
		if !h.dead && h.view.Number == view {
			do()
		}
	}
	w.queue = append(w.queue, arrive)
}

func (w *chains) run(servers, replicas, workers int, steps kintsugi.Step, next bool) {
	*w = chains{t: w.t, clock: time.Unix(0, 0), replicas: replicas, next: next, steps: steps, released: make(map[kintsugi.Step][]kintsugi.Weighted)}
	w.view = kintsugi.View{Number: 1, Line: 1, Fence: 1}
	for i := range servers {
		w.lives++
		w.hosts = append(w.hosts, &host{w: w, id: kintsugi.ServerID(i), life: w.lives, nodes: make(map[kintsugi.ShardID]*node)})
		w.view.Servers = append(w.view.Servers, kintsugi.Member{Server: kintsugi.ServerID(i), Incarnation: w.lives})
		w.view.Chains = append(w.view.Chains, w.home(i, servers))
	}
	for i := range workers {
		w.lives++
		w.hands = append(w.hands, &hand{slot: kintsugi.Slot(i), life: w.lives})
	}
	w.enter()
}

func (w *chains) home(shard, servers int) (chain []kintsugi.ServerID) {
	for r := range w.replicas {
		chain = append(chain, kintsugi.ServerID((shard+r)%servers))
	}
	return chain
}

// nextView puts the view of the servers that are alive, on the same line.
func (w *chains) nextView() {
	v := w.view
	v.Number++
	v.Servers, v.Chains = slices.Clone(v.Servers), nil
	in := func(h *host) bool { return !h.dead && !h.deaf && w.view.Servers[h.id].Incarnation == h.life }
	for i, chain := range w.view.Chains {
		var next []kintsugi.ServerID
		for _, id := range chain {
			if in(w.hosts[id]) {
				next = append(next, id)
			}
		}
		for _, id := range w.home(i, len(w.hosts)) {
			if h := w.hosts[id]; !h.dead && !h.deaf && !slices.Contains(next, id) {
				next = append(next, id)
				v.Servers[id] = kintsugi.Member{Server: id, Incarnation: h.life, Since: v.Number}
			}
		}
		v.Chains = append(v.Chains, next)
	}
	v.Conductor = v.Chains[0][0]
	w.view = v
	w.say("view %d: chains %v, conductor server/%d", v.Number, v.Chains, v.Conductor)
	w.enter()
}

// enter makes every host and worker enter the newest view.
func (w *chains) enter() {
	for _, h := range w.hosts {
		if !h.dead && !h.deaf {
			h.enter(w.view)
		}
	}
	for _, h := range w.hosts {
		if h.dead || h.deaf {
			continue
		}
		for i := range w.view.Chains {
			if n := h.nodes[kintsugi.ShardID(i)]; n != nil {
				n.connect()
			}
		}
	}
	c := w.hosts[w.view.Conductor]
	w.fence++
	core, err := conductor.New(conductor.Config{
		Line: 1, View: w.view.Number, Continues: w.view.Number > 1, Fence: w.fence, Shards: len(w.view.Chains), Slots: len(w.hands), Steps: w.steps,
		Consistency: agg.Config{Lead: kintsugi.Infinite}, Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 1},
	}, w.clock)
	if err != nil {
		w.t.Fatal(err)
	}
	c.conductor, c.fence = core, w.fence
	for i := range w.view.Chains {
		core.ShardConnected(kintsugi.ShardID(i))
	}
	for _, x := range w.hands {
		w.hello(x)
	}
	c.perform()
}

func (h *host) enter(v kintsugi.View) {
	left := h.nodes
	last := h.view
	h.view, h.nodes, h.conductor = v, make(map[kintsugi.ShardID]*node), nil
	for i, chain := range v.Chains {
		at := slices.Index(chain, h.id)
		if at < 0 || v.Servers[h.id].Incarnation != h.life {
			continue
		}
		id := kintsugi.ShardID(i)
		follows, after := at > 0, at+1 < len(chain)
		n := &node{h: h, id: id, held: make(map[kintsugi.PushID]uint64)}
		switch old := left[id]; {
		case old != nil && last.Number >= v.Servers[h.id].Since:
			n.core, n.now, n.next, n.sum = old.core.GoOn(v.Number, follows, after), old.now, old.next, old.sum
		case v.Servers[h.id].Since == 0:
			n.core = shard.New(id, 1, 1, v.Number, 0)
			n.core.Place(follows, after)
		default:
			n.core = shard.New(id, 1, 1, v.Number, 0)
			n.core.Lack()
			n.core.Place(follows, after)
		}
		if h.w.next {
			n.core.NextAnswers(at)
		}
		if !follows && !n.core.Whole() {
			h.w.say("server/%d ends: it is not whole and must be the head of shard %d", h.id, i)
			h.dead = true
			return
		}
		h.nodes[id] = n
	}
}

// connect connects a replica to its predecessor.
func (n *node) connect() {
	w, chain := n.h.w, n.h.view.Chains[n.id]
	at := slices.Index(chain, n.h.id)
	if at == 0 {
		return
	}
	n.h.attempts++
	first := n.core.Follow(n.h.id, n.h.attempts)
	before := w.hosts[chain[at-1]]
	w.to(before, func() {
		p := before.nodes[n.id]
		if p == nil {
			return
		}
		plan, err := p.core.Followed(first)
		if err != nil { // not whole yet: it tries again later
			w.to(n.h, n.connect)
			return
		}
		p.after = n
		for _, m := range plan {
			p.send(m)
		}
		p.perform()
	})
}

// send sends a message to the next replica, with the data that belongs to it.
func (n *node) send(m kintsugi.ChainMessage) {
	w, to, sum, now := n.h.w, n.after, n.sum, n.now
	if s, ok := m.(kintsugi.Snapshot); ok {
		w.say("server/%d sends server/%d shard %d as of step %d", n.h.id, to.h.id, n.id, s.Step)
	}
	var arrive func()
	arrive = func() {
		if to.deaf || to.core.Waits() {
			to.later = append(to.later, arrive)
			return
		}
		switch m.(type) {
		case kintsugi.Snapshot:
			to.now = now
		case kintsugi.Update:
			to.sum = sum
		case kintsugi.Joined:
			w.say("server/%d has caught up with shard %d", to.h.id, n.id)
		}
		if !to.core.Obey(m) {
			w.t.Errorf("server/%d does not obey %+v", to.h.id, m)
		}
		to.perform()
	}
	w.to(to.h, arrive)
}

func (n *node) perform() {
	w := n.h.w
	ready := n.core.Ready()
	for _, p := range ready.Free {
		delete(n.held, p)
	}
	if ready.Publish != nil {
		n.now = n.next
		if want := w.version(n.id, *ready.Publish); n.now != want {
			w.t.Errorf("server/%d: version %d of shard %d is %x, want %x", n.h.id, *ready.Publish, n.id, n.now, want)
		}
	}
	if ready.Apply != nil {
		n.apply(*ready.Apply)
	}
	if n.after != nil {
		for _, m := range ready.Down {
			n.send(m)
		}
	}
	for _, m := range ready.Replies {
		n.answer(m)
	}
}

func (n *node) apply(c kintsugi.Commit) {
	if !n.core.Follows() {
		n.sum = 0
		for _, x := range c.Counted {
			g, ok := n.held[x.Push]
			if !ok {
				n.h.w.t.Errorf("server/%d applies %v without its bytes", n.h.id, x.Push)
			}
			n.sum = hash(n.sum, g)
		}
	}
	next := hash(n.now, uint64(c.Step), n.sum)
	n.h.w.to(n.h, func() {
		n.next = next
		n.h.w.say("server/%d applies step %d to shard %d", n.h.id, c.Step, n.id)
		n.core.Applied(c.Decided, nil, 0, 0, 0)
		n.perform()
		n.hear()
	})
}

// hear delivers the messages that have waited.
func (n *node) hear() {
	later := n.later
	n.later = nil
	for _, f := range later {
		f()
	}
}

// answer answers the predecessor, or the conductor.
func (n *node) answer(m kintsugi.ReplicaMessage) {
	w, chain := n.h.w, n.h.view.Chains[n.id]
	if at := slices.Index(chain, n.h.id); at > 0 {
		before := w.hosts[chain[at-1]]
		w.to(before, func() {
			if p := before.nodes[n.id]; p != nil {
				p.core.Heard(m)
				p.perform()
			}
		})
		return
	}
	if s, ok := m.(kintsugi.Stable); ok && s.Waits {
		return // these conductors hear of the next replica from the head alone
	}
	c := w.hosts[n.h.view.Conductor]
	w.to(c, func() {
		if s, ok := m.(kintsugi.Stable); ok {
			w.say("shard %d is stable at %d", s.Shard, s.Step)
		}
		if c.conductor != nil {
			c.conductor.HandleReplica(w.clock, m)
			c.perform()
		}
	})
}

// perform carries out what the Ready of a host's conductor says.
func (h *host) perform() {
	ready := h.conductor.Ready()
	for _, m := range ready.ToShards {
		head := h.w.hosts[h.view.Chains[m.Shard][0]]
		h.w.to(head, func() {
			if n := head.nodes[m.Shard]; n != nil {
				n.core.Handle(m.Message)
				n.perform()
			}
		})
	}
	for _, e := range ready.Events {
		if e, ok := e.(kintsugi.StepEvent); ok {
			h.w.release(h, e)
		}
	}
	for _, m := range ready.ToWorkers {
		if x := h.w.hands[m.Slot]; x.life == m.Incarnation {
			h.w.tell(h, x, m.Message)
		}
	}
}

// release notes what a step counts. Another conductor may release it again, and then it must count
// the same.
func (w *chains) release(h *host, e kintsugi.StepEvent) {
	var counted []kintsugi.Weighted
	text := ""
	for _, p := range e.Counted {
		counted = append(counted, kintsugi.Weighted{Push: p})
		text += fmt.Sprintf(" worker/%d", p.Slot)
	}
	w.say("server/%d releases step %d of%s", h.id, e.Step, text)
	if was, ok := w.released[e.Step]; ok && !slices.EqualFunc(was, counted, func(a, b kintsugi.Weighted) bool { return a.Push == b.Push }) {
		w.t.Errorf("step %d is released of %v and of %v", e.Step, was, counted)
	}
	if e.Step > w.newest+1 || e.Step < w.newest {
		w.t.Errorf("step %d is released after step %d", e.Step, w.newest)
	}
	w.released[e.Step], w.newest = counted, e.Step
}

// version computes what a shard is after a step.
func (w *chains) version(id kintsugi.ShardID, step kintsugi.Step) uint64 {
	v := uint64(0)
	for s := kintsugi.Step(1); s <= step; s++ {
		sum := uint64(0)
		for _, x := range w.released[s] {
			sum = hash(sum, gradient(id, x.Push))
		}
		v = hash(v, uint64(s), sum)
	}
	return v
}

// hello connects a worker with the conductor of the newest view.
func (w *chains) hello(x *hand) {
	if x.dead {
		return
	}
	c := w.hosts[w.view.Conductor]
	x.view, x.pushed = w.view.Number, false
	w.to(c, func() {
		if err := c.conductor.HandleHello(w.clock, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: x.slot, Incarnation: x.life}); err != nil {
			w.t.Error(err)
		}
		c.perform()
	})
}

// tell is what a worker does about a message of its conductor.
func (w *chains) tell(h *host, x *hand, m kintsugi.ConductorMessage) {
	view := h.view.Number
	w.queue = append(w.queue, func() {
		if x.dead || x.view != view {
			return
		}
		switch m := m.(type) {
		case kintsugi.Admitted:
			w.push(x, h, m.Step)
		case kintsugi.Released:
			if m.Step > x.version {
				w.push(x, h, m.Step)
			}
		case kintsugi.Refused:
			w.say("worker/%d is refused: %s", x.slot, m.Reason)
		}
	})
}

// push sends a gradient to every head and, when all have it, the ticket.
func (w *chains) push(x *hand, c *host, version kintsugi.Step) {
	if version >= w.steps {
		return
	}
	x.version = version
	p := kintsugi.PushID{Line: 1, Slot: x.slot, Incarnation: x.life, Version: version}
	left := len(c.view.Chains)
	for i, chain := range c.view.Chains {
		head := w.hosts[chain[0]]
		w.to(head, func() {
			n := head.nodes[kintsugi.ShardID(i)]
			if n == nil {
				return
			}
			if v, reason := n.core.Begin(p); v == shard.Refuse {
				w.say("worker/%d is refused: %s", x.slot, reason)
				return
			} else if v == shard.Accept {
				n.held[p] = gradient(n.id, p)
				n.core.Complete(p)
			}
			n.perform()
			if left--; left == 0 {
				w.to(c, func() {
					views := slices.Repeat([]kintsugi.ViewNumber{c.view.Number}, len(c.view.Chains))
					c.conductor.HandleTicket(w.clock, kintsugi.Ticket{Push: p, Views: views, Loss: 1, Examples: 1, SquaredNorm: 1})
					c.perform()
				})
			}
		})
	}
}
