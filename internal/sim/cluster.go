package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Cluster is a run under virtual time. It runs every core of the product; a seed determines the
// order of events.
type Cluster struct {
	clock
	cfg      Config
	rng      *rand.Rand
	cuts     *cuts // nil: no cuts
	layout   *kintsugi.Layout
	shards   []kintsugi.ChunkRange
	registry registry
	store    store
	oracle   *oracle

	procs        int
	incarnation  kintsugi.Incarnation
	lives        map[kintsugi.Incarnation]*serverLife
	servers      []*serverLife // by id: the newest life
	workers      []*hand       // by slot: the newest life
	coordinator  *overseer
	coordinators int
	rivals       []*overseer   // former coordinators that are still alive
	promoted     []*conducting // conductors besides the one that the view names
	blocked      map[[2]int]time.Duration

	faults      [faultKinds]int
	finished    kintsugi.ViewNumber // newest view whose conductor has said that the run is over; 0: none
	stopped     bool                // the run was asked to stop
	refused     map[kintsugi.PushID]bool
	partials    int                         // number of shards that came back alone
	moved       int                         // number of shards that other servers head, over all views with one replica
	recalled    int                         // number of shards that were found outside their servers' processes
	outside     []outside                   // by server
	offered     map[kintsugi.PushID]offered // kept pushes
	outages     OutageResult
	encoded     map[kintsugi.PushID][]uint64 // payloads by chunk
	returned    map[kintsugi.PushID]bool     // encoded pushes that their workers take for dropped, on the current line
	residuals   ResidualResult
	flows       FlowResult
	inFlight    int           // see Result
	away        time.Duration // how long a server that dies now stays away at least
	outageAt    time.Duration // when all servers went away; 0: not yet
	met         int           // number of simultaneous deaths so far, see meeting
	strange     int           // number of times that a server has said that it does not reach another one
	parted      int           // number of servers that were left out for that reason, over all views
	startedOver int           // number of times that a conductor has made a worker start over
	forgot      time.Duration // when a worker last forgot to push to a head; 0: never
	awaited     meeting       // the meeting whose moment is awaited
	violation   *Violation
}

// Violation is a broken promise.
type Violation struct {
	Promise string // name of the promise
	Text    string
	At      time.Duration // in virtual time
	Config  Config
}

// Error says which promise was broken and how to repeat the run.
func (v *Violation) Error() string {
	replay := fmt.Sprintf("make sim SEED=%d STEPS=%d", v.Config.Seed, v.Config.drawn)
	if drawn := Draw(v.Config.Seed, v.Config.drawn); drawn != v.Config.bare() {
		replay = "run the test that changed what this seed draws"
	}
	return fmt.Sprintf("%s: %s\nat %v of a run with %v\nreplay: %s", v.Promise, v.Text, v.At, v.Config, replay)
}

// Result is the outcome of a run that kept its promises.
type Result struct {
	Steps   []kintsugi.Commit // of the last line, without those before its restore
	Base    kintsugi.Step     // step that the last line was restored from
	Params  []uint64          // of the last version
	Lines   int
	Views   int
	Virtual time.Duration
	Events  int
	Faults  [faultKinds]int

	Partials int // shards that came back alone while others were kept
	Outages  OutageResult

	Recalled int // shards that a new life of a server has found outside its process

	Moved int  // shards that other servers headed, over all views
	Home  bool // at the end, all shards are with their own servers

	Residuals ResidualResult
	Flows     FlowResult

	met int // see Cluster

	inFlight int // the most pushes that one worker has had in flight, if it may have several

	strange, parted int // see Cluster
	startedOver     int // see Cluster
}

// Run runs a cluster to its end. The error, if any, is a *Violation, or says why there is no such
// cluster.
func Run(cfg Config) (Result, error) {
	c, err := newCluster(cfg)
	if err != nil {
		return Result{}, err
	}
	c.startCoordinator()
	for i := range c.servers {
		c.startServer(i)
	}
	for i := range c.workers {
		c.startWorker(i)
	}
	c.scheduleFault()
	c.wish()
	c.estrange()
	c.scheduleNotice()
	c.scheduleMeetings()
	for i := range cmp.Or(cfg.kills, 3) {
		if cfg.killEvery > 0 {
			c.after(nil, time.Duration(i+1)*cfg.killEvery, func() { c.kill(c.servers[(cfg.first+i)%len(c.servers)].proc, "killed") })
		}
	}
	if cfg.estrangeAt > 0 {
		c.after(nil, cfg.estrangeAt, func() {
			a, b := c.servers[cfg.first], c.servers[(cfg.first+1)%len(c.servers)]
			c.block(a.proc, b.proc, never)
			a.finds(b, never)
		})
	}
	if cfg.StopAfter > 0 {
		c.after(nil, cfg.StopAfter, c.stopRun)
	}
	for c.violation == nil && !c.over() {
		if !c.step() {
			c.fail(movesOn, "nothing will ever happen again\n%s", c.picture())
		}
		if c.now > max(cfg.Storm, c.forgot)+cfg.patience() {
			c.fail(movesOn, "not over %v after the last fault\n%s", cfg.patience(), c.picture())
		}
		if c.events > 200_000+20_000*int(cfg.Steps) {
			c.fail(movesOn, "%d events and no end\n%s", c.events, c.picture())
		}
	}
	if c.violation == nil {
		c.checkEnd()
	}
	if c.violation != nil {
		return c.result(), c.violation
	}
	return c.result(), nil
}

// stopRun asks all conductors, including later ones, to end the run after the open step.
func (c *Cluster) stopRun() {
	c.say("the run is asked to stop")
	c.stopped = true
	for _, s := range c.servers {
		if s.tenure != nil && s.tenure.conductor != nil {
			s.tenure.conductor.stopRun()
		}
	}
	for _, x := range c.promoted {
		x.stopRun()
	}
}

func newCluster(cfg Config) (*Cluster, error) {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{cfg.Chunks * kintsugi.MinChunkValues}}})
	if err == nil {
		err = cfg.Consistency.Check(cfg.Workers)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6b696e)), cuts: newCuts(cfg), layout: layout, shards: layout.Split(cfg.Servers),
		oracle:  newOracle(len(layout.Chunks)),
		lives:   make(map[kintsugi.Incarnation]*serverLife),
		servers: make([]*serverLife, cfg.Servers), workers: make([]*hand, cfg.Workers),
		blocked: make(map[[2]int]time.Duration), refused: make(map[kintsugi.PushID]bool), offered: make(map[kintsugi.PushID]offered),
		encoded: make(map[kintsugi.PushID][]uint64), returned: make(map[kintsugi.PushID]bool),
	}
	c.outages.Bound = keptArrays
	c.outside = make([]outside, cfg.Servers)
	c.registry = registry{c: c, places: make([]place, cfg.Servers)}
	c.store = store{c: c, parts: make(map[string]*part), saved: make(map[kintsugi.ChunkID][]savedChunk)}
	return c, nil
}

// wall returns the time that the cores are told.
func (c *Cluster) wall() time.Time { return time.Unix(1_000_000, 0).Add(c.now) }

func (c *Cluster) newProc(name string) *proc {
	c.procs++
	return &proc{name: name, id: c.procs, accept: func(e *end, _ any) { e.close(errOver) }}
}

// kill ends a process at once: its streams break and its state is lost. If the cluster needs it, it
// is started again after a while.
func (c *Cluster) kill(p *proc, why string) {
	if p.dead {
		return
	}
	c.say("%s dies: %s", p.name, why)
	p.dead = true
	for _, s := range p.streams {
		c.breakStream(s)
	}
	p.streams = nil
	back := max(2*time.Millisecond+c.spell(), c.away)
	for i, s := range c.servers {
		if s.proc == p {
			if s.tenure != nil {
				s.tenure.over = true
			}
			c.pulse(s, false)
			back := c.absence(back)
			c.after(nil, back, func() {
				if c.servers[i] == s {
					c.startServer(i)
				}
			})
		}
	}
	for i, h := range c.workers {
		if h.proc == p {
			c.after(nil, back, func() {
				if c.workers[i] == h {
					c.startWorker(i)
				}
			})
		}
	}
	if c.coordinator.proc == p {
		c.after(nil, back, c.startCoordinator)
	}
	for _, x := range c.promoted {
		if x.p == p && c.registry.acting.proc == p {
			c.after(nil, back, func() { c.promote() })
		}
	}
}

// absence returns how long a server stays away, if it would normally be away for back: every other
// time much longer, but only for one server at a time, and only once there is a view.
func (c *Cluster) absence(back time.Duration) time.Duration {
	dead := 0
	for _, s := range c.servers {
		if s.dead {
			dead++
		}
	}
	if c.cfg.Absence == 0 || c.registry.view == nil || dead == len(c.servers) || !c.cfg.stay && !c.chance(0.5) {
		return back
	}
	return max(back, c.cfg.Absence)
}

// over reports whether the run has ended for all processes. Once the conductor of the view that
// counts has said that the run is over, the launcher ends processes that a later failure would
// otherwise restart.
func (c *Cluster) over() bool {
	everybody := true
	for _, h := range c.workers {
		everybody = everybody && h.finished
	}
	return everybody || (c.finished != 0 && c.finished != c.registry.view.Number)
}

func (c *Cluster) storming() bool { return c.now < c.cfg.Storm }

// say writes a line to the trace.
func (c *Cluster) say(format string, args ...any) {
	if c.cfg.Trace != nil {
		fmt.Fprintf(c.cfg.Trace, "%12v  %s\n", c.now, fmt.Sprintf(format, args...))
	}
}

func (c *Cluster) fail(promise, format string, args ...any) {
	if c.violation != nil {
		return
	}
	c.violation = &Violation{Promise: promise, Text: fmt.Sprintf(format, args...), At: c.now, Config: c.cfg}
	c.say("BROKEN: %s: %s", promise, c.violation.Text)
}

func (c *Cluster) result() Result {
	r := Result{Virtual: c.now, Events: c.events, Faults: c.faults, Partials: c.partials, Recalled: c.recalled, Outages: c.outages, Residuals: c.residuals, Flows: c.flows, Moved: c.moved, met: c.met, inFlight: c.inFlight, strange: c.strange, parted: c.parted, startedOver: c.startedOver}
	if v := c.registry.view; v != nil {
		r.Lines, r.Views, r.Home = int(v.Line), int(v.Number), true
		for i, chain := range v.Chains {
			r.Home = r.Home && len(chain) == max(1, v.Replicas) && int(chain[0]) == i
		}
		if h := c.oracle.lines[v.Line]; h != nil {
			r.Steps, r.Base, r.Params = h.steps, h.base, h.versions[len(h.versions)-1]
		}
	}
	return r
}

// picture describes the state of all processes.
func (c *Cluster) picture() string {
	s := ""
	if v := c.registry.view; v != nil {
		s += fmt.Sprintf("view %d line %d: %s\n", v.Number, v.Line, v.Reason)
	}
	for _, x := range c.servers {
		s += fmt.Sprintf("%s dead=%v seen=%d", x.name, x.dead, x.seen)
		if t := x.tenure; t != nil {
			s += fmt.Sprintf(" serves view %d", t.view.Number)
			for _, r := range t.replicas {
				if r != nil {
					s += fmt.Sprintf("; shard %d released %d applied %d promised %d holds %d", r.id, r.released, r.reached, r.promised, len(r.held))
				}
			}
			if x := t.conductor; x != nil {
				s += fmt.Sprintf("; conducts under %d: released %d finished %v", x.fence, x.core.Released(), x.core.Finished())
			}
		}
		s += "\n"
	}
	for _, x := range c.promoted {
		s += fmt.Sprintf("%s dead=%v over=%v conducts under %d: released %d finished %v\n", x.p.name, x.p.dead, x.over, x.fence, x.core.Released(), x.core.Finished())
	}
	for _, h := range c.workers {
		s += fmt.Sprintf("%s dead=%v finished=%v", h.name, h.dead, h.finished)
		if x := h.session; x != nil {
			s += fmt.Sprintf(" session: joined=%v awaiting=%v push=%v silent=%v over=%v", x.joined, x.awaiting, x.push, x.silent, x.over)
		}
		s += "\n"
	}
	return s
}

func (c *Cluster) computeTime(slot kintsugi.Slot) time.Duration {
	d := c.between(c.cfg.Compute/2, 2*c.cfg.Compute)
	if slot == 0 && c.cfg.Straggler > 1 {
		d *= time.Duration(c.cfg.Straggler)
	}
	return d
}
