package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ledger"
)

// Way is how the shard of a lost server comes back, as far as it affects the cost.
type Way uint8

// The ways.
const (
	BackToStart      Way = iota // all shards go back to the start
	BackToCheckpoint            // all shards go back to the newest full checkpoint
	BackAlone                   // only the lost chunks go back, to the running checkpoint
	BackNowhere                 // nothing goes back: a replica, or memory outside the process, has everything
	BackToCopy                  // only the lost chunks go back, to the newest copy on another replica
)

// Costs keeps the cost account of a run: what the loss of each server would cost now, what a real
// loss was predicted to cost, and what it did cost. Its input is what the conductors report. Times
// are arguments. It is not safe for concurrent use.
type Costs struct {
	way     Way
	servers int
	heads   []kintsugi.ServerID // by shard: the server that heads it; nil: server i heads shard i
	alone   bool                // each shard has one replica
	every   kintsugi.Step       // with BackToCopy: number of steps between two copies
	book    *ledger.Ledger

	line    kintsugi.Line // of the newest view
	newest  kintsugi.Step
	full    kintsugi.Step // step of the newest full checkpoint
	outages float64       // sum of all recoveries, in seconds
	mended  int           // number of recoveries
	told    time.Time
	begun   time.Time // time of the first step; zero before it
	saved   time.Time // when the save of full began, or begun

	losses []float64 // losses of the newest steps; the last is that of newest
	open   []mending
}

// mending is a partial recovery whose cost is being measured.
type mending struct {
	part      string
	from      kintsugi.Step // step after which the new line began
	before    []float64     // losses up to that step
	predicted float64       // before calibration; NaN if it was not known
}

// Numbers of losses that are compared before and after a failure. More would reduce the noise, but
// lie farther from the failure than one curve can be extrapolated.
const (
	lossesBefore = 64
	lossesAfter  = 32
)

// tellCosts is the time between two records of the costs.
const tellCosts = 2 * time.Second

// NewCosts returns the account of a run. every is the number of steps between two copies, with
// BackToCopy.
func NewCosts(servers int, way Way, every kintsugi.Step) *Costs {
	return &Costs{way: way, servers: servers, every: every, book: ledger.New(50)}
}

// GoOn sets how far the run had come before this account was kept: the line, its newest step, and
// the step of the newest full checkpoint, whose version was the newest at time saved.
func (c *Costs) GoOn(line kintsugi.Line, step, full kintsugi.Step, saved time.Time) {
	c.line, c.newest, c.full, c.begun, c.saved = line, step, full, saved, saved
}

// View notes a new view. If it begins a line that keeps nothing, the run goes back to a step.
func (c *Costs) View(v kintsugi.View) {
	c.heads, c.alone = nil, v.Replicas <= 1
	for _, chain := range v.Chains {
		c.heads = append(c.heads, chain[0])
	}
	goesOn := v.Line == c.line
	if c.line = v.Line; goesOn || v.Line <= 1 || v.Keeps != 0 {
		return
	}
	c.newest, c.full, c.losses, c.open = v.RestoreStep, v.RestoreStep, nil, nil
	c.book.Exposed(nil)
}

// Step notes a released step. It returns the resulting events: at intervals what losses would cost,
// and what a past loss has cost as soon as that is known.
func (c *Costs) Step(e kintsugi.StepEvent) []record.Event {
	if c.begun.IsZero() {
		c.begun, c.saved = e.Time, e.Time
	}
	if e.Step <= c.newest {
		return nil
	}
	c.newest = e.Step
	c.book.Observe(ledger.Step{Step: e.Step, Loss: e.Loss, Seconds: (e.Wait + e.Apply).Seconds(), SquaredNorm: e.Norm * e.Norm})
	c.losses = append(c.losses, e.Loss)
	if n := len(c.losses) - lossesBefore - lossesAfter; n >= 64 {
		c.losses = append([]float64(nil), c.losses[n:]...)
	}
	events := c.measure(e.Step)
	if e.Time.Sub(c.told) >= tellCosts {
		c.told = e.Time
		events = append(events, c.costs(e))
	}
	return events
}

// Checkpoint notes a save that was reported at time at.
func (c *Costs) Checkpoint(e kintsugi.CheckpointEvent, at time.Time) {
	if !e.Running && e.Err == "" {
		c.full, c.saved = max(c.full, e.Step), at.Add(-e.Took)
	}
}

// Age returns the time since the newest full checkpoint's version was the newest, or since the
// first step if there is no checkpoint. ok is false before the first step.
func (c *Costs) Age(now time.Time) (age time.Duration, ok bool) {
	if c.begun.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(c.saved)), true
}

// Exposed notes how far the shards have moved since they were saved.
func (c *Costs) Exposed(e kintsugi.ExposureEvent) { c.book.Exposed(e.Shards) }

// Recovered notes how long, in seconds, training was interrupted by the failure of a server.
func (c *Costs) Recovered(seconds float64) {
	c.outages += seconds
	c.mended++
}

// Partial notes that a shard has come back alone. It fills in the fields that p lacks: how far the
// shard went back, and what that is expected to cost.
func (c *Costs) Partial(e kintsugi.PartialEvent, p *record.Partial) {
	back, ok := c.book.Back(int(e.Shard))
	if !ok {
		return
	}
	p.Distance = record.Number(back.Squared)
	m := mending{part: p.Part, from: e.Step, before: c.upTo(e.Step), predicted: float64(record.Unknown())}
	if steps, ok := c.book.Predict(back); ok {
		if e.Chunks > 0 { // what came back may be newer than the values that the distances refer to, such as those of another replica
			steps = min(steps, float64(e.Age)/float64(e.Chunks))
		}
		factor, _ := c.book.Calibration()
		m.predicted, p.ReworkSteps = steps, record.Number(steps*factor)
	}
	c.open = append(c.open, m)
	c.book.Restored(int(e.Shard))
}

// upTo returns the losses of the steps up to the given one.
func (c *Costs) upTo(step kintsugi.Step) []float64 {
	n := len(c.losses) - int(c.newest-min(c.newest, step))
	if n <= 0 {
		return nil
	}
	return append([]float64(nil), c.losses[max(0, n-lossesBefore):n]...)
}

// measure completes the measurements that have seen enough steps. It also ends a measurement if
// another failure follows so soon that the two cannot be separated; the cost is then unknown.
func (c *Costs) measure(step kintsugi.Step) (events []record.Event) {
	keep := c.open[:0]
	for i, m := range c.open {
		until := m.from + lossesAfter
		if i+1 < len(c.open) {
			until = min(until, c.open[i+1].from)
		}
		if step < until {
			keep = append(keep, m)
			continue
		}
		after := c.losses[max(0, len(c.losses)-int(step-m.from)):]
		after = after[:min(len(after), int(until-m.from))]
		steps, deviation, ok := ledger.Behind(m.before, after)
		if !ok {
			continue
		}
		factor, _ := c.book.Calibration()
		r := &record.Rework{Part: m.part, Step: uint64(m.from), Predicted: record.Number(m.predicted * factor), Measured: record.Number(steps), Deviation: record.Number(deviation)}
		c.book.Failure(m.predicted, steps, deviation)
		r.Calibration, r.Failures = c.book.Calibration()
		events = append(events, r)
	}
	c.open = keep
	return events
}

// costs returns what the loss of each server would cost now.
func (c *Costs) costs(e kintsugi.StepEvent) *record.Exposure {
	age, _ := c.Age(e.Time)
	x := &record.Exposure{Line: uint64(e.Line), Step: uint64(e.Step), AgeSeconds: record.Number(age.Seconds()), AgeSteps: record.Number(c.newest - min(c.newest, c.full))}
	x.Calibration, x.Failures = c.book.Calibration()
	for i := range c.servers {
		x.Servers = append(x.Servers, c.cost(i))
	}
	return x
}

// shards returns the shards that a server heads.
func (c *Costs) shards(server int) (list []int) {
	if c.heads == nil {
		return []int{server}
	}
	for shard, head := range c.heads {
		if int(head) == server {
			list = append(list, shard)
		}
	}
	return list
}

// cost returns what the loss of a server would cost now. With one replica per shard, that is the
// cost of losing the shards that it heads.
func (c *Costs) cost(i int) record.ServerCost {
	s := ledger.Server{Server: kintsugi.ServerID(i)}
	if c.mended > 0 {
		s.Outage = c.outages / float64(c.mended)
	}
	r := record.ServerCost{Part: fmt.Sprintf("server/%d", i), Steps: record.Unknown(), Seconds: record.Unknown(), Distance: record.Unknown(), MeanAge: record.Unknown()}
	switch c.way {
	case BackToStart:
		s.Back, s.Age = true, float64(c.newest)
	case BackToCheckpoint:
		s.Back, s.Age = true, float64(c.newest-min(c.newest, c.full))
	case BackToCopy:
		s.Copied, s.Age = true, float64(c.newest%max(1, c.every))
	case BackAlone:
		if len(c.shards(i)) == 0 {
			r.Steps, r.Seconds, r.Why = 0, 0, "it holds nothing: others have taken over"
			return r
		}
		if !c.restored(c.shards(i), &s, &r) {
			r.Why = "nobody has measured yet how far it is from what is saved of it"
			return r
		}
	case BackNowhere: // but shards that it has taken over are only in the memory of its process
		taken := slices.DeleteFunc(c.shards(i), func(shard int) bool { return shard == i })
		if s.Replica = !c.alone || len(taken) == 0; !s.Replica && !c.restored(taken, &s, &r) {
			r.Why = "it has taken over shards of another server, and nobody has measured how far they are from what is saved of them"
			return r
		}
	}
	cost := c.book.Cost(s)
	if r.Why = cost.Why; cost.Known {
		r.Steps, r.Seconds = record.Number(cost.Steps), record.Number(cost.Seconds)
	}
	return r
}

// restored fills in how far shards have moved since they were saved. It returns false if that is
// not known for all of them.
func (c *Costs) restored(shards []int, s *ledger.Server, r *record.ServerCost) bool {
	squared, age, chunks := 0.0, 0.0, 0
	for _, shard := range shards {
		x, ok := c.book.Exposure(shard)
		if !ok {
			return false
		}
		back, _ := c.book.Back(shard)
		s.Restored.Dot += back.Dot
		s.Restored.Squared += back.Squared
		squared, age, chunks = squared+x.Squared, age+float64(x.Age), chunks+int(x.Chunks)
	}
	if r.Distance = record.Number(squared); chunks > 0 {
		r.MeanAge = record.Number(age / float64(chunks))
	}
	return true
}

// Worst returns the server whose loss would cost the most steps now. ok is false if the cost of any
// server is unknown, since that server might be the worst.
func (c *Costs) Worst() (worst record.ServerCost, ok bool) {
	for i := range c.servers {
		r := c.cost(i)
		if !r.Steps.Known() {
			return r, false
		}
		if i == 0 || r.Steps > worst.Steps {
			worst = r
		}
	}
	return worst, c.servers > 0
}
