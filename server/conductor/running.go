package conductor

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Planner chooses the chunks that the running checkpoint saves (recovery/scar implements it). The
// chunks of all shards are numbered through, so that a plan is one choice over the whole model. A
// planner decides and does nothing else. One goroutine calls it.
type Planner interface {
	// Begin is called with the step at which the run stands and, by chunk, the version that is
	// saved.
	Begin(step kintsugi.Step, saved []kintsugi.Step)

	// Due reports whether a plan should be made at a step.
	Due(step kintsugi.Step) bool

	// Accessed adds the number of values of a chunk that gradients have named since the last call.
	Accessed(c kintsugi.ChunkID, times uint64)

	// Plan chooses chunks of a step's version to be saved. distances has ‖x − saved‖² of each
	// chunk. A chosen chunk is not chosen again before Done.
	Plan(step kintsugi.Step, distances []float64) []kintsugi.ChunkID

	// Done reports that chunks are durable as they were at a step or, if durable is false, that
	// their save failed.
	Done(step kintsugi.Step, chunks []kintsugi.ChunkID, durable bool)

	// Age returns how many steps before step the saved version of a chunk is.
	Age(step kintsugi.Step, c kintsugi.ChunkID) kintsugi.Step

	// Observe is called with the event of each step, of each exposure and of each save. A planner
	// that adapts to the run learns from it.
	Observe(e kintsugi.RunEvent)
}

// running manages the running checkpoint. The distances that a plan needs are by-products of the
// step whose version it saves, so they cost no pass over the parameters and no message. The next
// plan waits for the saves of the one before. So a slow store makes saves rarer, and never a step
// slower. A nil running does nothing.
type running struct {
	planner Planner
	first   []kintsugi.ChunkID // by shard: the number of its first chunk; then the number of all chunks. nil: not known yet
	flight  []*part            // by shard; nil: no save of it is under way
	pause   kintsugi.Step      // after the newest failure: how many steps pass without a plan
	resume  kintsugi.Step      // the first step of the next plan
	seen    kintsugi.Step      // the step whose distances were measured last
}

// part is what a plan saves of a shard.
type part struct {
	step   kintsugi.Step
	chunks []kintsugi.ChunkID // numbered through
	left   float64            // ‖x − saved‖² of the other chunks of the shard
}

func newRunning(cfg Config) *running {
	if cfg.Running == nil {
		return nil
	}
	return &running{planner: cfg.Running, flight: make([]*part, cfg.Shards)}
}

// begin takes what the shards say of their chunks. A shard without saved versions has no running
// checkpoint.
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

// due reports whether a plan should be made for the version of a step.
func (r *running) due(step kintsugi.Step) bool {
	busy := func(p *part) bool { return p != nil }
	return r != nil && r.first != nil && step >= r.resume && !slices.ContainsFunc(r.flight, busy) && r.planner.Due(step)
}

// lookEvery is the largest number of steps between two measurements of what a loss would take back.
// While a slow store is at work, there are no plans that would measure it.
const lookEvery = 16

// overlooked reports whether the last measurement was too long ago.
func (r *running) overlooked(step kintsugi.Step) bool {
	return r != nil && r.first != nil && step >= r.seen+lookEvery
}

// maxPause bounds how many steps pass after a failure before saves are tried again. A store that is
// away for hours must not fill the logs.
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

// saved notes the end of a save, and returns the distance of the shard from its saved values; NaN:
// not known.
func (r *running) saved(m kintsugi.Saved) (distance float64) {
	if r == nil || r.flight[m.Shard] == nil || r.flight[m.Shard].step != m.Step {
		return math.NaN() // an earlier conductor has asked for it
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

// wants returns the by-products that the commit of a step asks for because of the running
// checkpoint.
func (c *Conductor) wants(step kintsugi.Step) kintsugi.Want {
	if c.save.step == nil && c.running.due(step) || c.running.overlooked(step) {
		return kintsugi.WantSaved
	}
	return 0
}

// plan tells every shard of a release, and which chunks to save of it. If the step has measured how
// far the shards are from their saved values, plan returns that as an event.
func (c *Conductor) plan(o *open, rel kintsugi.Released) []kintsugi.RunEvent {
	r := c.running
	if r == nil || r.first == nil || o.commit.Want&kintsugi.WantSaved == 0 {
		rel.Want = c.wants(rel.Step + 1)
		c.toAllShards(rel)
		return nil
	}
	r.seen = rel.Step
	distances, exposure := r.measure(o)
	if len(distances) != int(r.first[c.cfg.Shards]) { // some shard has no running checkpoint
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
			if c.taken[s] == nil { // it will not get the message
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

// measure returns the distance of each chunk from its saved values, and what the loss of each shard
// would take back.
func (r *running) measure(o *open) (distances []float64, e kintsugi.ExposureEvent) {
	e = kintsugi.ExposureEvent{Line: o.commit.Line, Step: o.commit.Step}
	for s, stable := range o.stable {
		var x kintsugi.Exposure
		for i, p := range stable.Products {
			// Overflowed parameters count as infinitely far, so they are saved first.
			if !(p.SquaredSaved <= math.MaxFloat64) {
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

// share cuts the chunks of a shard from the front of the chosen ones; nil: there are none of it.
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
