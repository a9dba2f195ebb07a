package record

import "slices"

// Span is a number of steps of one line that were recorded one after another, reduced to one point
// of a chart.
type Span struct {
	Line        uint64
	First, Last uint64  // steps
	Steps       int     // number of recorded steps in [First, Last]
	Again       bool    // each step had been released before, on an earlier line
	Seconds     float64 // time of the last release

	Loss      Number // mean of the known losses; not known if there is none
	Low, High Number // smallest and largest of these losses
	known     int

	// Counted, Workers and Quota are those of one of the steps. Each step is chosen with the same
	// probability, so that a periodic pattern, such as the same two of four workers in every second
	// step, is seen correctly in many spans.
	Counted        []uint32 // slots, one per counted gradient, ascending
	Workers, Quota uint32
	drawn          uint64 // random key of that step: the step with the smallest is chosen

	Why Why // of the last step with a reason
}

// Why is the reason for a quota; empty if there is none.
type Why struct {
	Step   uint64
	Quota  uint32
	Reason string
}

// Outline holds the steps of a run in bounded memory. As long as there is room, each step is a span
// of its own. Then neighbours are joined, and from then on each span holds twice as many steps. The
// zero Outline is empty.
type Outline struct {
	Spans []Span // in the order in which the steps were recorded
	Steps int    // number of steps in all spans
	Each  int    // largest number of steps in a span; 0: one

	highest uint64 // highest step so far
	room    int    // size of the spans, in units of room
	limit   int    // limit on room; 0: outlineRoom
}

// The size of an outline is measured in slots: spanRoom for a span, and one for each gradient of
// its step. outlineRoom is enough for 123,000 steps of 4 workers, and for 7,900 steps of 1000
// workers: about 30 MB.
const (
	spanRoom    = 64
	outlineRoom = 1 << 23
)

func (s *Span) room() int { return spanRoom + len(s.Counted) }

// add adds the step that was recorded next. It keeps the slices of the step.
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
		if o.room > o.limit*3/4 { // too many lines, whose spans cannot be joined: enlarge the limit, or every few steps would try again
			o.limit = 2 * o.room
		}
	}
}

// put joins a span to the last one if they belong together, and otherwise appends it.
func (o *Outline) put(s *Span) {
	if n := len(o.Spans); n > 0 {
		last := &o.Spans[n-1]
		if len(s.Counted) > 0 && slices.Equal(last.Counted, s.Counted) {
			s.Counted = last.Counted // equal lists, which are common, are stored once
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

// halve doubles the number of steps in a span and joins the spans.
func (o *Outline) halve() {
	all := o.Spans
	o.Spans, o.room, o.Each = all[:0], 0, 2*max(1, o.Each)
	for i := range all {
		s := all[i] // writing never overtakes reading
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

// clone returns a copy that does not change when steps are added to o.
func (o *Outline) clone() Outline {
	c := *o
	c.Spans = slices.Clone(o.Spans)
	return c
}

// scatter returns a pseudorandom number for a step, independent of those of its neighbours (the
// finaliser of SplitMix64).
func scatter(step uint64) uint64 {
	x := step + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
