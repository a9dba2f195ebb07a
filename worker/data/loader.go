package data

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Loader draws the batches of one slot, the next one ahead of time: while a gradient is computed and its step is
// waited for, a goroutine draws what the slot needs on the version that follows. It guesses no further, and does not
// guess after a version that was not the guessed one, so a worker that skips versions draws no batch in vain
// but the first. What is returned is the same function of slot, version and sequence whether it was guessed or not.
//
// A Loader is not safe for concurrent use.
type Loader struct {
	// Ahead, if set, is told of each batch that was drawn ahead of time, by the goroutine that drew
	// it: until it returns, Batch waits. What it is given is the memory that Batch will return, if
	// it is asked for that batch next; else it is written over. It is set before the first Batch.
	Ahead func(slot kintsugi.Slot, version kintsugi.Step, x []float32, y []int32)

	sampler  Sampler
	examples Examples
	current  batch
	ahead    batch         // drawn, or being drawn, if guessed
	guessed  bool          // ahead is in use
	trusting bool          // the last version was the one after its predecessor
	drawn    chan struct{} // receives a value when ahead is drawn
	wait     time.Duration
}

// batch is a batch and what it is the batch of.
type batch struct {
	slot     kintsugi.Slot
	version  kintsugi.Step
	sequence uint32
	indices  []int
	x        []float32
	y        []int32
}

// NewLoader returns a loader of what sampler chooses of examples.
func NewLoader(sampler Sampler, examples Examples) *Loader {
	l := &Loader{sampler: sampler, examples: examples, trusting: true, drawn: make(chan struct{}, 1)}
	for _, b := range []*batch{&l.current, &l.ahead} {
		b.x, b.y = make([]float32, sampler.Batch*examples.Values()), make([]int32, sampler.Batch*examples.Labels())
	}
	return l
}

// Batch returns the examples of one gradient, [Batch, Values], and their labels, [Batch, Labels]. They belong to
// the loader and are valid until the next call.
func (l *Loader) Batch(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) (x []float32, y []int32) {
	begin := time.Now()
	hit := false
	if l.guessed {
		<-l.drawn // even of a wrong guess: its buffers are in use until then
		l.guessed = false
		hit = l.ahead.is(slot, version, sequence)
	}
	switch {
	case hit:
		l.current, l.ahead = l.ahead, l.current
	case l.current.is(slot, version, sequence) && len(l.current.indices) > 0: // again: a push was lost, or its session
	default:
		l.trusting = len(l.current.indices) == 0 || l.current.is(slot, version-1, sequence)
		l.draw(&l.current, slot, version, sequence)
	}
	l.wait += time.Since(begin)
	if l.trusting && sequence == 0 {
		l.guessed = true
		go l.drawAhead(slot, version+1)
	}
	return l.current.x, l.current.y
}

// Waited returns how long calls of Batch have taken in all.
func (l *Loader) Waited() time.Duration { return l.wait }

// Close waits for what is being drawn.
func (l *Loader) Close() {
	if l.guessed {
		<-l.drawn
		l.guessed = false
	}
}

func (l *Loader) drawAhead(slot kintsugi.Slot, version kintsugi.Step) {
	l.draw(&l.ahead, slot, version, 0)
	if l.Ahead != nil {
		l.Ahead(slot, version, l.ahead.x, l.ahead.y)
	}
	l.drawn <- struct{}{}
}

func (l *Loader) draw(b *batch, slot kintsugi.Slot, version kintsugi.Step, sequence uint32) {
	b.slot, b.version, b.sequence = slot, version, sequence
	b.indices = l.sampler.Indices(b.indices, slot, version, sequence)
	l.examples.Fill(b.x, b.y, b.indices)
}

func (b *batch) is(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) bool {
	return b.slot == slot && b.version == version && b.sequence == sequence
}
