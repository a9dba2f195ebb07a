package conductor

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Interval chooses the time between full checkpoints by what the run shows (recovery/choose
// implements it). One goroutine calls it.
type Interval interface {
	// Step is called for each step. beside says that a full checkpoint was under way during the
	// step.
	Step(e kintsugi.StepEvent, beside bool)

	// Saved is called at the end of each full checkpoint, whether it succeeded or not, and before
	// Step of the step in which it ended.
	Saved(e kintsugi.CheckpointEvent)

	// After returns the time from the beginning of one full checkpoint to that of the next.
	After() time.Duration
}

// saving manages the full checkpoints of a run. At most one is under way. So a slow store makes
// checkpoints rarer, never steps slower.
type saving struct {
	every    kintsugi.Step
	after    time.Duration
	interval Interval // chooses after; nil: after is constant
	beside   bool     // a save was under way since the newest release

	begun   time.Time     // when the newest was begun; zero: this conductor has begun none, and does not know when others have
	newest  kintsugi.Step // 1 + the newest step a save was begun for; 0: none
	durable kintsugi.Step // 1 + the newest step whose save has succeeded; 0: none
	step    *kintsugi.Step
	shards  []*kintsugi.Saved
	late    bool // a step that should have been saved found another save under way
}

// due reports whether the version of a step that is released now should be saved.
func (s *saving) due(now time.Time, step kintsugi.Step, last bool) bool {
	bySteps := s.every > 0 && (step%s.every == 0 || s.late)
	if s.interval != nil {
		s.after = s.interval.After()
	}
	byTime := s.after > 0 && (s.begun.IsZero() || now.Sub(s.begun) >= s.after)
	if !last && !bySteps && !byTime {
		return false
	}
	if s.step != nil {
		s.late = !last // finish saves the last version when this save has ended
		return false
	}
	return true
}

func (s *saving) begin(now time.Time, step kintsugi.Step, shards int) {
	s.step, s.newest, s.late, s.begun, s.beside = &step, step+1, false, now, true
	s.shards = make([]*kintsugi.Saved, shards)
}

// passed reports whether a save was under way during the step that is released now. Call it before
// a save of that step's version is begun.
func (s *saving) passed() (beside bool) {
	beside, s.beside = s.beside, s.step != nil
	return beside
}

// observe reports a step to the interval.
func (s *saving) observe(e kintsugi.StepEvent, beside bool) {
	if s.interval != nil {
		s.interval.Step(e, beside)
	}
}

// handleSaved notes that a shard's part is durable. When all parts are, the run manifest may be
// published.
func (c *Conductor) handleSaved(now time.Time, m kintsugi.Saved) {
	if m.Running {
		e := kintsugi.CheckpointEvent{
			Line: c.cfg.Line, Step: m.Step, Running: true, Shard: m.Shard, Chunks: m.Chunks, Distance: c.running.saved(m), Manifest: m.Manifest, Bytes: m.Bytes, Took: m.Took, Err: m.Err,
		}
		c.ready.Events = append(c.ready.Events, e)
		c.running.observe(e)
		return
	}
	c.running.savedAll(m)
	if c.save.step == nil || *c.save.step != m.Step || c.save.shards[m.Shard] != nil {
		return // an answer to an earlier conductor, or a repetition
	}
	c.save.shards[m.Shard] = &m
	p := Publication{Step: m.Step}
	failed := ""
	for i, s := range c.save.shards {
		if s == nil {
			return
		}
		if s.Err != "" {
			failed = fmt.Sprintf("shard %d: %s", i, s.Err)
		}
		p.Manifests = append(p.Manifests, s.Manifest)
		p.Bytes += s.Bytes
		p.Took = max(p.Took, s.Took)
	}
	if failed != "" {
		c.Published(now, kintsugi.CheckpointEvent{Step: m.Step, Took: p.Took, Err: failed})
		return
	}
	c.ready.Publish = append(c.ready.Publish, p)
}

// Published ends a save: the run manifest is durable, or e.Err says why it is not. Training goes on
// in either case, and the next save is made when it is due.
func (c *Conductor) Published(now time.Time, e kintsugi.CheckpointEvent) {
	if c.save.step == nil || *c.save.step != e.Step {
		return
	}
	c.save.step = nil
	if e.Err == "" {
		c.save.durable = e.Step + 1
	}
	if c.save.interval != nil {
		c.save.interval.Saved(e)
	}
	e.Line = c.cfg.Line
	c.ready.Events = append(c.ready.Events, e)
	c.proceed(now)
}
