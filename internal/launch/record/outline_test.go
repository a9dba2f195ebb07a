package record

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
)

// drawSteps draws what a run may record: lines that go back or go on, gaps, losses that are NaN,
// reasons, and workers that take turns.
func drawSteps(rng *rand.Rand, n int) []*Step {
	var all []*Step
	line, step := uint64(1), uint64(1+rng.IntN(3))
	for range n {
		s := &Step{At: At{float64(len(all)) / 8}, Line: line, Step: step, Loss: Number(rng.NormFloat64()), Workers: 4, Quota: uint32(1 + rng.IntN(4)), Counted: []uint32{uint32(step % 2), 2 + uint32(step%2)}}
		switch rng.IntN(12) {
		case 0:
			s.Loss = Number([]float64{math.NaN(), math.Inf(1)}[rng.IntN(2)])
		case 1:
			s.Reason = fmt.Sprint("reason ", len(all))
		case 2:
			s.Counted = nil
		}
		all = append(all, s)
		step++
		switch rng.IntN(200) {
		case 0: // a restore, or a line that goes on
			line, step = line+1, step-uint64(rng.IntN(int(min(step, 40))))
		case 1: // shards fall back within a line
			step -= uint64(rng.IntN(int(min(step, 4))))
		case 2: // a gap in the record
			step += 5
		}
	}
	return all
}

func outlineOf(all []*Step, limit int) *Outline {
	o := &Outline{limit: limit}
	for _, s := range all {
		o.add(s)
	}
	return o
}

// While there is room, each span is a step.
func TestAnOutlineHasEachStepWhileThereIsRoom(t *testing.T) {
	all := drawSteps(rand.New(rand.NewPCG(1, 2)), 3000)
	o := outlineOf(all, 0)
	if o.Steps != len(all) || len(o.Spans) != len(all) || o.Each != 0 {
		t.Fatalf("%d steps in %d spans of %d each", o.Steps, len(o.Spans), o.Each)
	}
	for i, s := range all {
		got, loss := o.Spans[i], fmt.Sprint(float64(s.Loss))
		if got.Line != s.Line || got.First != s.Step || got.Last != s.Step || got.Steps != 1 || got.Seconds != s.Seconds || fmt.Sprint(float64(got.Loss)) != loss || fmt.Sprint(float64(got.Low)) != loss ||
			fmt.Sprint(float64(got.High)) != loss || !slices.Equal(got.Counted, s.Counted) || got.Quota != s.Quota || got.Workers != s.Workers || got.Why.Reason != s.Reason {
			t.Fatalf("span %d is %+v, its step %+v", i, got, s)
		}
	}
}

// Beyond that, spans summarise their steps correctly, and stay within the room.
func TestSpansTellWhatTheirStepsTell(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		all := drawSteps(rng, 1+rng.IntN(6000))
		limit := 66 * (60 + rng.IntN(200))
		o := outlineOf(all, limit)
		rest, highest, room := all, uint64(0), 0
		for i, s := range o.Spans {
			of := rest[:s.Steps]
			rest = rest[s.Steps:]
			room += s.room()
			if err := tells(s, of, highest); err != "" {
				t.Fatalf("seed %d: span %d of %d: %s: %+v", seed, i, len(o.Spans), err, s)
			}
			highest = max(highest, slices.MaxFunc(of, func(a, b *Step) int { return int(a.Step) - int(b.Step) }).Step)
			if i > 0 && s.Steps+o.Spans[i-1].Steps <= o.Each/2 && s.Line == o.Spans[i-1].Line && s.First > o.Spans[i-1].Last && s.Again == o.Spans[i-1].Again {
				t.Fatalf("seed %d: spans %d and %d were to be joined before any others were made longer", seed, i-1, i)
			}
		}
		if len(rest) > 0 || o.Steps != len(all) {
			t.Fatalf("seed %d: %d steps are in no span", seed, len(rest))
		}
		if room != o.room || room > o.limit || o.limit > max(limit, 8*66*lines(all)) {
			t.Fatalf("seed %d: %d spans take %d, %d are booked, of %d that grew from %d", seed, len(o.Spans), room, o.room, o.limit, limit)
		}
	}
}

// lines returns how many pairs of neighbours cannot be joined.
func lines(all []*Step) (n int) {
	highest := uint64(0)
	for i, s := range all {
		if i == 0 || s.Line != all[i-1].Line || s.Step <= all[i-1].Step || (s.Step <= highest) != (all[i-1].Step < highest) {
			n++
		}
		highest = max(highest, s.Step)
	}
	return n
}

// tells returns what is wrong with a span of some steps. highest is the highest step before it.
func tells(s Span, of []*Step, highest uint64) string {
	sum, known, low, high := 0.0, 0, math.Inf(1), math.Inf(-1)
	drawn, last, why := of[0], of[0], Why{}
	for i, e := range of {
		if e.Line != s.Line || i > 0 && e.Step <= last.Step || (e.Step <= highest) != s.Again {
			return fmt.Sprintf("step %d of line %d is not its", e.Step, e.Line)
		}
		last = e
		if e.Loss.Known() {
			sum, known, low, high = sum+float64(e.Loss), known+1, min(low, float64(e.Loss)), max(high, float64(e.Loss))
		}
		if scatter(e.Step) < scatter(drawn.Step) {
			drawn = e
		}
		if e.Reason != "" {
			why = Why{e.Step, e.Quota, e.Reason}
		}
	}
	switch {
	case s.First != of[0].Step || s.Last != last.Step || s.Seconds != last.Seconds:
		return "its ends"
	case known == 0 && s.Loss.Known(), known > 0 && (math.Abs(float64(s.Loss)-sum/float64(known)) > 1e-9 || float64(s.Low) != low || float64(s.High) != high):
		return fmt.Sprintf("its loss: want mean %v in [%v, %v]", sum/float64(known), low, high)
	case !slices.Equal(s.Counted, drawn.Counted) || s.Quota != drawn.Quota || s.Workers != drawn.Workers:
		return "who was counted"
	case s.Why != why:
		return "its reason"
	}
	return ""
}

// If workers are counted in turn, all of them are counted equally often in the spans too, although
// each span names the workers of one step only.
func TestSpansDoNotKeepStep(t *testing.T) {
	const n = 1 << 16
	o := &Outline{limit: 66 << 10}
	for i := range uint64(n) {
		o.add(&Step{Line: 1, Step: i + 1, Counted: []uint32{uint32(i % 2), uint32(2 + i%2)}})
	}
	even := 0
	for _, s := range o.Spans {
		if s.Counted[0] == 0 {
			even++
		}
	}
	if share := float64(even) / float64(len(o.Spans)); o.Each < 64 || math.Abs(share-0.5) > 0.1 {
		t.Errorf("of %d spans of %d steps, %.3f have the workers of the even steps", len(o.Spans), o.Each, share)
	}
}

// A recorder ends with what ReadOutline reads, also after it was resumed, and an outline that it
// gave out earlier does not change.
func TestARecorderHasWhatIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	rng := rand.New(rand.NewPCG(4, 5))
	all := drawSteps(rng, 400)
	for _, s := range all {
		if !s.Loss.Known() { // as it is read from the file
			s.Loss = Unknown()
		}
	}
	r, err := Create(dir, []byte("seed: 1\n"), Header{Start: begin, Servers: 2, Workers: 4})
	must(t, err)
	record := func(steps []*Step) {
		for _, s := range steps {
			now := at(s.Seconds)
			r.Record(now, s)
			switch rng.IntN(8) {
			case 0:
				r.Record(now, &Checkpoint{Line: s.Line, Step: s.Step, Running: true, Shard: uint32(rng.IntN(2)), Bytes: 7})
			case 1:
				r.Record(now, &Checkpoint{Line: s.Line, Step: s.Step, Running: rng.IntN(2) == 0, Shard: uint32(rng.IntN(2)), Error: "no space left"})
			case 2:
				r.Record(now, &Checkpoint{Line: s.Line, Step: s.Step, Manifest: fmt.Sprint("m", s.Step)})
			case 3:
				r.Record(now, &Failure{Part: "server/1", Cause: "killed"})
			case 4:
				r.Record(now, &View{Line: s.Line, Heads: []uint32{0, 1}})
			}
		}
	}
	record(all[:200])
	first, err := r.Finish(at(100), "interrupted")
	must(t, err)
	same(t, dir, first)

	r, earlier, err := Resume(dir, Header{Start: at(1000), Servers: 2, Workers: 4}, nil)
	must(t, err)
	r.run.Outline.limit = 66 * 100 // from here on, spans are joined in place
	was := show(earlier)
	for _, s := range all[200:] {
		s.Seconds += 1000
	}
	record(all[200:])
	ended, err := r.Finish(at(1200), "done")
	must(t, err)
	if got := show(earlier); got != was {
		t.Errorf("what was there before has changed to\n%s\nfrom\n%s", got, was)
	}
	if len(ended.Outline.Spans) > 250 || ended.Outline.Each < 2 {
		t.Errorf("%d spans of %d steps", len(ended.Outline.Spans), ended.Outline.Each)
	}
	ended.Outline = Outline{} // its room was not that of a reader
	same(t, dir, ended)
	if r.Record(at(1300), &Failure{Part: "server/0"}); len(ended.Failures) != len(ended.Summary.Failures) {
		t.Error("a run goes on after its end")
	}
}

// same fails unless ReadOutline reads the same run. An empty outline is not compared.
func same(t *testing.T, dir string, run *Run) {
	t.Helper()
	read, err := ReadOutline(dir)
	must(t, err)
	steps := read.Outline.Steps
	if run.Outline.Steps == 0 {
		read.Outline = Outline{}
	}
	if got, want := show(run), show(read); got != want {
		t.Errorf("the recorder has\n%s\nand its file\n%s", got, want)
	}
	whole, err := ReadRun(dir)
	whole.Checkpoints, read.Checkpoints, whole.Outline, read.Outline = nil, nil, Outline{}, Outline{}
	must(t, err)
	if a, b := show(whole), show(read); a != b || len(whole.Steps) != steps || whole.Steps[len(whole.Steps)-1].Step != read.Newest.Step {
		t.Errorf("the whole run is\n%s\nits outline\n%s", a, b)
	}
}

// show writes all that is visible of a run.
func show(run *Run) string {
	o := run.Outline
	summary, err := json.Marshal(run.Summary)
	return fmt.Sprintf("%+v", []any{run.Header.Start.UTC(), string(run.Config), run.First, run.Newest, o.Spans, o.Steps, o.Each, run.Failures, run.Recoveries, run.Views, run.Checkpoints, run.Notes, string(summary), err})
}
