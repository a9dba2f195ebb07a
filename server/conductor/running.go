package conductor

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Planner chooses what the running checkpoint takes (recovery/scar does, in a run). The chunks of
// all shards are numbered through, so that a plan is one choice over the whole model. It decides
// and does nothing else; one goroutine calls it.
type Planner interface {
	// Begin says where the run stands, and which version of each chunk is saved.
	Begin(step kintsugi.Step, saved []kintsugi.Step)

	// Due reports whether a plan should be made at a step.
	Due(step kintsugi.Step) bool

	// Accessed notes how many values of a chunk gradients have named since the last call.
	Accessed(c kintsugi.ChunkID, times uint64)

	// Plan chooses chunks of a step's version. distances are ‖x − saved‖² of each. What it has
	// chosen is not chosen again before Done.
	Plan(step kintsugi.Step, distances []float64) []kintsugi.ChunkID

	// Done says that chunks are durable as they were at a step, or that their save failed.
	Done(step kintsugi.Step, chunks []kintsugi.ChunkID, durable bool)

	// Age returns how many steps before step the saved version of a chunk is.
	Age(step kintsugi.Step, c kintsugi.ChunkID) kintsugi.Step

	// Observe is told of each step, of what every shard would lose, and of each save: what adapts
	// to the run learns it here.
	Observe(e kintsugi.RunEvent)
}

// running follows the running checkpoint. The distances that a plan asks for are by-products of the
// step whose version it saves: no pass over the parameters and no message is made for them. The
// next plan waits for the saves of the one before, so a slow store makes saves rarer and never a
// step slower. Nil follows nothing.
type running struct {
	planner Planner
	first   []kintsugi.ChunkID // by shard: the number of its first chunk; and behind them that of all. nil: not known yet
	flight  []*part            // by shard; nil: no save of it is under way
	pause   kintsugi.Step      // after the newest failure: how many steps it lets go by
	resume  kintsugi.Step      // the first step of the next plan
	seen    kintsugi.Step      // whose distances were measured last
}

// part is what a plan saves of a shard.
type part struct {
	step   kintsugi.Step
	chunks []kintsugi.ChunkID // numbered through
	left   float64            // ‖x − saved‖² of the shard without them
}

func newRunning(cfg Config) *running {
	if cfg.Running == nil {
		return nil
	}
	return &running{planner: cfg.Running, flight: make([]*part, cfg.Shards)}
}

// begin takes what the shards say of their chunks. A shard that knows of no running checkpoint has none.
func (r *running) begin(step kintsugi.Step, taken []*kintsugi.Taken) {
	if r == nil {
		return
	}
	r.first, r.seen = []kintsugi.ChunkID{0}, step
	var saved []kintsugi.Step
	for _, t := range taken {
		saved = append(saved, t.Saved...)
		r.first = append(r.first, kintsugi.ChunkID(len(saved)))
	}
	r.planner.Begin(step, saved)
}

// due reports whether the version of a step is to be planned.
func (r *running) due(step kintsugi.Step) bool {
	busy := func(p *part) bool { return p != nil }
	return r != nil && r.first != nil && step >= r.resume && !slices.ContainsFunc(r.flight, busy) && r.planner.Due(step)
}

// lookEvery is how many steps go by at most before it is measured what a loss would take back:
// while a slow store takes its time, nothing is planned.
const lookEvery = 16

// overlooked reports whether it was not measured for long.
func (r *running) overlooked(step kintsugi.Step) bool {
	return r != nil && r.first != nil && step >= r.seen+lookEvery
}

// maxPause bounds how many steps go by after a failure before saves are tried again: a store that
// is away for hours must not fill the logs.
const maxPause = 1023

// end ends the save of a shard's part.
func (r *running) end(s kintsugi.ShardID, durable bool) {
	p := r.flight[s]
	r.flight[s] = nil
	r.planner.Done(p.step, p.chunks, durable)
	if durable {
		r.pause = 0
		return
	}
	r.pause = min(2*r.pause+1, maxPause)
	r.resume = p.step + 1 + r.pause
}

// lose gives up the save of a shard whose answer may be lost with its stream.
func (r *running) lose(s kintsugi.ShardID) {
	if r != nil && r.flight[s] != nil {
		r.end(s, false)
	}
}

// saved notes the end of a save, and returns the distance of the shard from what is saved of it; NaN: it is not known.
func (r *running) saved(m kintsugi.Saved) (distance float64) {
	if r == nil || r.flight[m.Shard] == nil || r.flight[m.Shard].step != m.Step {
		return math.NaN() // a conductor before this one has asked for it
	}
	distance = r.flight[m.Shard].left
	if m.Err != "" {
		distance = math.NaN()
	}
	r.end(m.Shard, m.Err == "")
	return distance
}

// savedAll notes that all chunks of a shard are saved.
func (r *running) savedAll(m kintsugi.Saved) {
	if r == nil || r.first == nil || m.Err != "" {
		return
	}
	var chunks []kintsugi.ChunkID
	for id := r.first[m.Shard]; id < r.first[m.Shard+1]; id++ {
		chunks = append(chunks, id)
	}
	r.planner.Done(m.Step, chunks, true)
}

func (r *running) observe(e kintsugi.RunEvent) {
	if r != nil {
		r.planner.Observe(e)
	}
}

// wants returns what the commit of a step asks for because of the running checkpoint.
func (c *Conductor) wants(step kintsugi.Step) kintsugi.Want {
	if c.save.step == nil && c.running.due(step) || c.running.overlooked(step) {
		return kintsugi.WantSaved
	}
	return 0
}

// plan tells every shard of a release, and what it is to save of it. If the step has measured how
// far the shards are from what is saved of them, that is returned as an event.
func (c *Conductor) plan(o *open, rel kintsugi.Released) []kintsugi.RunEvent {
	r := c.running
	if r == nil || r.first == nil || o.commit.Want&kintsugi.WantSaved == 0 {
		rel.Want = c.wants(rel.Step + 1)
		c.toAllShards(rel)
		return nil
	}
	r.seen = rel.Step
	distances, exposure := r.measure(o)
	if len(distances) != int(r.first[c.cfg.Shards]) { // a shard that has no running checkpoint
		c.toAllShards(rel)
		return nil
	}
	var chosen []kintsugi.ChunkID
	if r.due(rel.Step) && c.save.step == nil {
		chosen = r.planner.Plan(rel.Step, distances)
		slices.Sort(chosen)
	}
	runs := make([][]kintsugi.ChunkID, c.cfg.Shards)
	for i := range runs {
		s := kintsugi.ShardID(i)
		if p := r.share(s, &chosen, distances); p != nil {
			p.step = rel.Step
			r.flight[s] = p
			for _, id := range p.chunks {
				runs[i] = append(runs[i], id-r.first[s])
			}
			if c.taken[s] == nil { // it will not hear of it
				r.lose(s)
			}
		}
	}
	rel.Want = c.wants(rel.Step + 1) // a step is not measured while the saves of the one before are under way
	for i, run := range runs {
		rel.Run = run
		c.toShard(kintsugi.ShardID(i), rel)
	}
	r.observe(exposure)
	return []kintsugi.RunEvent{exposure}
}

// measure returns the distance of each chunk from what is saved of it, and what the loss of each shard would take back.
func (r *running) measure(o *open) (distances []float64, e kintsugi.ExposureEvent) {
	e = kintsugi.ExposureEvent{Line: o.commit.Line, Step: o.commit.Step}
	for s, stable := range o.stable {
		var x kintsugi.Exposure
		for i, p := range stable.Products {
			if !(p.SquaredSaved <= math.MaxFloat64) { // parameters that have overflowed: nothing else matters for what is saved
				p.SquaredSaved = math.MaxFloat64
			}
			distances = append(distances, p.SquaredSaved)
			x.Squared += p.SquaredSaved
			x.Dot += p.DotSaved
			x.Chunks++
			if id := r.first[s] + kintsugi.ChunkID(i); id < r.first[s+1] {
				x.Age += uint64(r.planner.Age(e.Step, id))
				r.planner.Accessed(id, uint64(p.Touched))
			}
		}
		e.Shards = append(e.Shards, x)
	}
	return distances, e
}

// share cuts the chunks of a shard from the head of those that were chosen; nil: there are none.
func (r *running) share(s kintsugi.ShardID, chosen *[]kintsugi.ChunkID, distances []float64) *part {
	n := 0
	for n < len(*chosen) && (*chosen)[n] < r.first[s+1] {
		n++
	}
	if n == 0 {
		return nil
	}
	p := &part{chunks: (*chosen)[:n:n]}
	*chosen = (*chosen)[n:]
	for id, rest := r.first[s], p.chunks; id < r.first[s+1]; id++ {
		if len(rest) > 0 && rest[0] == id {
			rest = rest[1:]
			continue
		}
		p.left += distances[id]
	}
	return p
}
