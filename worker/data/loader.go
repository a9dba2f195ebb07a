package data

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Loader draws the batches of one slot, and draws the next batch in advance. While a gradient is
// computed and its step is awaited, a goroutine draws the batch of the next version. It predicts
// only one version ahead, and makes no prediction after a version that was not predicted. So a
// worker that skips versions draws only one batch in vain. The returned batch is the same function
// of slot, version and sequence whether it was predicted or not.
//
// Only one goroutine may use a Loader at a time.
type Loader struct {
	// Ahead, if set, is called for each batch that was drawn in advance, by the goroutine that drew
	// it. Batch waits until Ahead has returned. x and y are the memory that Batch returns if that
	// batch is asked for next; otherwise they are overwritten. Set Ahead before the first call of
	// Batch.
	Ahead func(slot kintsugi.Slot, version kintsugi.Step, x []float32, y []int32)

	sampler  Sampler
	examples Examples
	current  batch
	ahead    batch         // valid, or being drawn, if guessed
	guessed  bool          // ahead is in use
	trusting bool          // the last version was the one after its predecessor
	drawn    chan struct{} // receives a value when ahead has been drawn
	wait     time.Duration
}

// batch is a batch and its identity.
type batch struct {
	slot     kintsugi.Slot
	version  kintsugi.Step
	sequence uint32
	indices  []int
	x        []float32
	y        []int32
}

// NewLoader returns a loader of the batches that sampler chooses from examples.
func NewLoader(sampler Sampler, examples Examples) *Loader {
	l := &Loader{sampler: sampler, examples: examples, trusting: true, drawn: make(chan struct{}, 1)}
	for _, b := range []*batch{&l.current, &l.ahead} {
		b.x, b.y = make([]float32, sampler.Batch*examples.Values()), make([]int32, sampler.Batch*examples.Labels())
	}
	return l
}

// Batch returns the examples of one gradient, [Batch, Values], and their labels, [Batch, Labels].
// Both belong to the loader and are valid until the next call.
func (l *Loader) Batch(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) (x []float32, y []int32) {
	begin := time.Now()
	hit := false
	if l.guessed {
		<-l.drawn // wait even if the prediction was wrong: its buffers are in use until then
		l.guessed = false
		hit = l.ahead.is(slot, version, sequence)
	}
	switch {
	case hit:
		l.current, l.ahead = l.ahead, l.current
	case l.current.is(slot, version, sequence) && len(l.current.indices) > 0: // asked again: a push was lost, or its session
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

// Waited returns the total time that calls of Batch have taken.
func (l *Loader) Waited() time.Duration { return l.wait }

// Close waits until the batch that is being drawn is complete.
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
