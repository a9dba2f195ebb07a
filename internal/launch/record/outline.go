package record

import "slices"

// Span is some steps of one line that were recorded one after another, as one point of a picture.
type Span struct {
	Line        uint64
	First, Last uint64  // steps
	Steps       int     // recorded of [First, Last]
	Again       bool    // each of them had been released before, on an earlier line
	Seconds     float64 // when the last was released

	Loss      Number // mean of those that are known; not known if none is
	Low, High Number // the least and the greatest of them
	known     int

	// Who was counted, of how many, is told of one of the steps. Each is as likely to be that one,
	// so that a rhythm in which workers come, such as the same two of four in every second step, is
	// seen in many spans as it is.
	Counted        []uint32 // slots, one per counted gradient, ascending
	Workers, Quota uint32
	drawn          uint64 // by which the step was chosen: the least

	Why Why // of the last step that has a reason
}

// Why is the reason for a quota, empty for none.
type Why struct {
	Step   uint64
	Quota  uint32
	Reason string
}

// Outline is the steps of a run in bounded memory, however many they are. While there is room each
// is a span of its own; then neighbours are joined, and from there on spans hold twice as many
// steps. The zero Outline is empty.
type Outline struct {
	Spans []Span // in the order in which the steps were recorded
	Steps int    // in all spans
	Each  int    // steps that a span may hold; 0: one

	highest uint64 // of all steps
	room    int    // that the spans take
	limit   int    // of room; 0: outlineRoom
}

// The room of an outline is counted in slots: a span takes spanRoom and one for each gradient of
// its step. It is enough for 123,000 steps of 4 workers, and for 7,900 of 1000: some 30 MB.
const (
	spanRoom    = 64
	outlineRoom = 1 << 23
)

func (s *Span) room() int { return spanRoom + len(s.Counted) }

// add adds the step that was recorded next. It keeps the step's slices.
func (o *Outline) add(e *Step) {
	s := Span{Line: e.Line, First: e.Step, Last: e.Step, Steps: 1, Again: e.Step <= o.highest, Seconds: e.Seconds, Loss: e.Loss, Low: e.Loss, High: e.Loss,
		Counted: e.Counted, Workers: e.Workers, Quota: e.Quota, drawn: scatter(e.Step)}
	if e.Loss.Known() {
		s.known = 1
	}
	if e.Reason != "" {
		s.Why = Why{e.Step, e.Quota, e.Reason}
	}
	o.Steps++
	o.highest = max(o.highest, e.Step)
	o.put(&s)
	if o.limit == 0 {
		o.limit = outlineRoom
	}
	if o.room > o.limit {
		o.halve()
		if o.room > o.limit*3/4 { // spans of as many lines cannot be joined: they get room, or every few steps would try
			o.limit = 2 * o.room
		}
	}
}

// put joins a span to the last one if they go together, or puts it behind.
func (o *Outline) put(s *Span) {
	if n := len(o.Spans); n > 0 {
		last := &o.Spans[n-1]
		if len(s.Counted) > 0 && slices.Equal(last.Counted, s.Counted) {
			s.Counted = last.Counted // lists that are alike, as most are, are kept once
		}
		if last.Line == s.Line && last.Last < s.First && last.Again == s.Again && last.Steps+s.Steps <= o.Each {
			o.room -= last.room()
			last.join(s)
			o.room += last.room()
			return
		}
	}
	o.Spans = append(o.Spans, *s)
	o.room += s.room()
}

// halve has spans hold twice as many steps.
func (o *Outline) halve() {
	all := o.Spans
	o.Spans, o.room, o.Each = all[:0], 0, 2*max(1, o.Each)
	for i := range all {
		s := all[i] // what is put never overtakes what is read
		o.put(&s)
	}
	clear(all[len(o.Spans):])
}

// join adds the steps of b, which come after those of s.
func (s *Span) join(b *Span) {
	switch {
	case s.known == 0:
		s.Loss, s.Low, s.High, s.known = b.Loss, b.Low, b.High, b.known
	case b.known > 0:
		s.Low, s.High = min(s.Low, b.Low), max(s.High, b.High)
		share := Number(b.known) / Number(s.known+b.known)
		s.Loss += share * (b.Loss - s.Loss)
		s.known += b.known
	}
	s.Last, s.Seconds = b.Last, b.Seconds
	s.Steps += b.Steps
	if b.drawn < s.drawn {
		s.Counted, s.Workers, s.Quota, s.drawn = b.Counted, b.Workers, b.Quota, b.drawn
	}
	if b.Why.Reason != "" {
		s.Why = b.Why
	}
}

// clone returns a copy that adding to o does not change.
func (o *Outline) clone() Outline {
	c := *o
	c.Spans = slices.Clone(o.Spans)
	return c
}

// scatter returns a number for a step that has nothing to do with its place among its neighbours
// (the finalizer of SplitMix64).
func scatter(step uint64) uint64 {
	x := step + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
