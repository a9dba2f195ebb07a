package compress

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// testLayout has chunks of rows, of vectors, and one of a single value.
func testLayout(t testing.TB) *kintsugi.Layout {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{
		{Name: "w", Shape: []int{12, 8}}, {Name: "b", Shape: []int{12}}, {Name: "s", Shape: []int{1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func pushOf(version int) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Slot: 2, Incarnation: 3, Version: kintsugi.Step(version)}
}

// send encodes a whole gradient and returns what the server decodes.
func send(f *Feedback, id kintsugi.PushID, grads []float32) (payload []byte, got []float32) {
	got = make([]float32, len(grads))
	for i, c := range f.layout.Chunks {
		b := f.Encode(nil, id, kintsugi.ChunkID(i), grads[c.Lo:c.Hi])
		copy(got[c.Lo:c.Hi], decoded(f.Codec().Encoding(), c.Len(), b))
		payload = append(payload, b...)
	}
	return payload, got
}

func saved(f *Feedback) []float32 {
	x := make([]float32, f.layout.Values)
	f.Save(x)
	return x
}

// Pushes are counted, dropped, repeated and restored in any order: what was applied and what is
// still to be sent add up to all gradients that were counted. With small whole numbers, and codecs
// that send values exactly, this holds to the last bit.
func TestNothingCountedIsLost(t *testing.T) {
	layout := testLayout(t)
	for _, spec := range []string{"topk:0.05:fp32", "topk:0.4:fp32", "bf16", "topk:0.1"} {
		codec := mustParse(t, spec)
		t.Run(spec, rapid.MakeCheck(func(t *rapid.T) {
			f := NewFeedback(codec, layout, 1)
			type sent struct {
				id           kintsugi.PushID
				grads, value []float32
			}
			var open []sent
			counted, applied := make([]float32, layout.Values), make([]float32, layout.Values)
			check := func() {
				want := slices.Clone(counted)
				for i, r := range saved(f) {
					if applied[i]+r != want[i] {
						t.Fatalf("value %d: %v was applied and %v remains, but %v was counted", i, applied[i], r, want[i])
					}
				}
			}
			version := 0
			t.Repeat(map[string]func(*rapid.T){
				"": func(*rapid.T) { check() },
				"push": func(t *rapid.T) {
					if len(open) == 3 {
						t.Skip("the credit is used up")
					}
					s := sent{id: pushOf(version), grads: make([]float32, layout.Values)}
					version++
					rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "gradient"), 0))
					for i := range s.grads {
						s.grads[i] = float32(rng.IntN(2001) - 1000)
					}
					_, s.value = send(f, s.id, s.grads)
					open = append(open, s)
				},
				"close": func(t *rapid.T) {
					if len(open) == 0 {
						t.Skip("no push is open")
					}
					i := rapid.IntRange(0, len(open)-1).Draw(t, "push")
					s := open[i]
					open = slices.Delete(open, i, i+1)
					if !rapid.Bool().Draw(t, "counted") {
						f.Dropped(s.id)
						f.Counted(s.id) // a message about a closed push changes nothing
						return
					}
					f.Counted(s.id)
					f.Dropped(s.id)
					add(counted, counted, s.grads)
					add(applied, applied, s.value)
				},
				"restore": func(t *rapid.T) {
					f.Restore(saved(f)) // from its own state, which makes open pushes void
					open = nil
				},
			})
		}))
	}
}

// Codecs that do not send values exactly lose what the float32 sums round: at most half a unit in
// the last place of each number that is added, and none exceeds 2¹² here.
func TestEveryCodecConservesTheGradients(t *testing.T) {
	const steps, bound = 200, 4 * 200 * 0x1p12 * 0x1p-24
	layout := testLayout(t)
	for _, spec := range allSpecs {
		f := NewFeedback(mustParse(t, spec), layout, 1)
		rng := rand.New(rand.NewPCG(1, 2))
		sum := make([]float64, layout.Values) // of counted gradients, minus what was applied
		for version := range steps {
			grads := make([]float32, layout.Values)
			for i := range grads {
				grads[i] = float32(rng.NormFloat64())
			}
			_, got := send(f, pushOf(version), grads)
			if rng.IntN(3) == 0 {
				f.Dropped(pushOf(version))
				continue
			}
			f.Counted(pushOf(version))
			for i := range sum {
				sum[i] += float64(grads[i]) - float64(got[i])
			}
		}
		for i, r := range saved(f) {
			if math.Abs(float64(r)) > 1<<12 || math.Abs(sum[i]-float64(r)) > bound {
				t.Fatalf("%s: value %d: %g is still to be sent, and the residual is %g", spec, i, sum[i], r)
			}
		}
	}
}

func TestAPushIsEncodedAgainToTheSameBytes(t *testing.T) {
	layout := testLayout(t)
	for _, spec := range allSpecs {
		encode := func() (first, again []byte) {
			f := NewFeedback(mustParse(t, spec), layout, 1)
			grads := drawn(0, layout.Values, 1)
			send(f, pushOf(0), grads)
			f.Counted(pushOf(0))
			first, _ = send(f, pushOf(1), grads)
			send(f, pushOf(2), grads)
			again, _ = send(f, pushOf(1), grads)
			return first, again
		}
		first, again := encode()
		other, _ := encode()
		if !bytes.Equal(first, again) || !bytes.Equal(first, other) {
			t.Errorf("%s: the same push gives other bytes", spec)
		}
	}
}

func TestChunksOfAPushMayBeEncodedAtOnce(t *testing.T) {
	layout := testLayout(t)
	for _, spec := range allSpecs {
		f, g := NewFeedback(mustParse(t, spec), layout, 1), NewFeedback(mustParse(t, spec), layout, 1)
		for version := range 5 {
			grads := drawn(0, layout.Values, uint64(version))
			want, _ := send(f, pushOf(version), grads)
			f.Counted(pushOf(version))
			parts := make([][]byte, len(layout.Chunks))
			var wg sync.WaitGroup
			for i, c := range layout.Chunks {
				wg.Go(func() {
					parts[i] = g.Encode(nil, pushOf(version), kintsugi.ChunkID(i), grads[c.Lo:c.Hi])
				})
			}
			wg.Wait()
			g.Counted(pushOf(version))
			if !bytes.Equal(bytes.Join(parts, nil), want) {
				t.Errorf("%s: chunks that are encoded at once have other bytes than one after the other", spec)
			}
		}
	}
}

func TestADroppedPushLeavesTheResidualAsItWas(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "sign"), layout, 1)
	send(f, pushOf(0), drawn(0, layout.Values, 1))
	f.Counted(pushOf(0))
	before := saved(f)
	send(f, pushOf(1), drawn(0, layout.Values, 2))
	send(f, pushOf(2), drawn(0, layout.Values, 3))
	f.Dropped(pushOf(2))
	f.Dropped(pushOf(1))
	if !sameBits(before, saved(f)) {
		t.Error("the residual is another one")
	}
	if want := (FeedbackCounts{Adopted: 1, Returned: 2}); f.Counts() != want {
		t.Errorf("counts are %+v, want %+v", f.Counts(), want)
	}
}

// A worker may be interrupted in the middle of a push. Whatever becomes of it, chunks that were
// never encoded keep their residual.
func TestChunksThatWereNotEncodedKeepTheirResidual(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "int8"), layout, 1)
	grads := drawn(0, layout.Values, 1)
	send(f, pushOf(0), grads)
	f.Counted(pushOf(0))
	before, first := saved(f), layout.Chunks[0]
	f.Encode(nil, pushOf(1), 0, grads[first.Lo:first.Hi])
	f.Counted(pushOf(1))
	after := saved(f)
	if !sameBits(before[first.Hi:], after[first.Hi:]) {
		t.Error("chunks that were not encoded have another residual")
	}
	if sameBits(before[:first.Hi], after[:first.Hi]) {
		t.Error("the chunk that was encoded has kept its residual")
	}
}

func TestTheSavedResidualIsTheSameEachTime(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "sign"), layout, 1)
	for version := range 4 { // each leaves something, which the next push takes
		send(f, pushOf(version), drawn(0, layout.Values, uint64(version)))
		f.Counted(pushOf(version))
		send(f, pushOf(10+version), drawn(0, layout.Values, uint64(version)))
	}
	first := saved(f)
	for range 20 {
		if !sameBits(first, saved(f)) {
			t.Fatal("the same residual is saved with other bits")
		}
	}
}

func TestFlushSendsEverything(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "topk:0.01"), layout, 1)
	grads := drawn(0, layout.Values, 1)
	send(f, pushOf(0), grads)
	f.Counted(pushOf(0))
	want := saved(f)
	if f.Norm() == 0 {
		t.Fatal("nothing is left to flush")
	}
	for i, c := range layout.Chunks {
		got := decoded(kernels.FP32, c.Len(), f.Flush(nil, pushOf(1), kintsugi.ChunkID(i), make([]float32, c.Len())))
		if !slices.Equal(got, want[c.Lo:c.Hi]) {
			t.Errorf("chunk %d is not flushed", i)
		}
	}
	f.Counted(pushOf(1))
	if f.Norm() != 0 {
		t.Errorf("after the flush the residual has the norm %g", f.Norm())
	}
}

func TestDropGivesTheResidualUpAndSaysHowMuch(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "sign"), layout, 1)
	grads := drawn(0, layout.Values, 1)
	send(f, pushOf(0), grads)
	f.Counted(pushOf(0))
	want := math.Sqrt(kernels.SquaredNorm(saved(f)))
	send(f, pushOf(1), grads) // this push has the residual now
	if got := f.Drop(); got != want || got == 0 {
		t.Errorf("dropped %g of %g", got, want)
	}
	f.Dropped(pushOf(1))
	if f.Norm() != 0 {
		t.Error("a push of before has brought the residual back")
	}
	if want := (FeedbackCounts{Adopted: 1, GivenUp: 1, Lost: want}); f.Counts() != want {
		t.Errorf("counts are %+v, want %+v", f.Counts(), want)
	}
}

// The norm of a residual that is longer than what is added up at a time is that of all of it, and of
// what open pushes have taken.
func TestTheNormOfALongResidual(t *testing.T) {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{100, 101}}, {Name: "b", Shape: []int{7}}})
	if err != nil {
		t.Fatal(err)
	}
	f := NewFeedback(mustParse(t, "sign"), layout, 1)
	send(f, pushOf(0), drawn(0, layout.Values, 1))
	f.Counted(pushOf(0))
	for _, open := range []bool{false, true} {
		if open {
			send(f, pushOf(1), drawn(0, layout.Values, 2))
		}
		squared := 0.0
		for _, v := range saved(f) {
			squared += float64(v) * float64(v)
		}
		if got, want := f.Norm(), math.Sqrt(squared); math.Abs(got-want) > 1e-9*want || want == 0 {
			t.Errorf("with an open push: %v: the norm is %g, want %g", open, got, want)
		}
	}
}

func TestARestoredResidualGoesOnAsBefore(t *testing.T) {
	layout := testLayout(t)
	c := mustParse(t, "powersgd:1")
	f := NewFeedback(c, layout, 1)
	send(f, pushOf(0), drawn(0, layout.Values, 1))
	f.Counted(pushOf(0))
	g := NewFeedback(c, layout, 1)
	g.Restore(saved(f))
	grads := drawn(0, layout.Values, 2)
	want, _ := send(f, pushOf(1), grads)
	if got, _ := send(g, pushOf(1), grads); !bytes.Equal(got, want) {
		t.Error("a worker with the restored residual sends other bytes")
	}
}

func TestWithoutFeedbackNothingIsKept(t *testing.T) {
	layout := testLayout(t)
	for _, spec := range []string{"fp32", "sign-nofeedback"} {
		f := NewFeedback(mustParse(t, spec), layout, 1)
		grads := drawn(0, layout.Values, 1)
		first, _ := send(f, pushOf(0), grads)
		f.Counted(pushOf(0))
		second, _ := send(f, pushOf(1), grads)
		f.Restore(grads)
		if !bytes.Equal(first, second) || f.Norm() != 0 || f.Counts() != (FeedbackCounts{}) {
			t.Errorf("%s remembers an earlier push", spec)
		}
	}
}

// With one open push at a time, two arrays of the model's size are enough, however many pushes
// there are.
func TestOneOpenPushNeedsTwoArrays(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "int8"), layout, 1)
	grads := drawn(0, layout.Values, 1)
	for version := range 50 {
		send(f, pushOf(version), grads)
		if version%3 == 1 {
			f.Dropped(pushOf(version))
		} else {
			f.Counted(pushOf(version))
		}
		f.Norm()
	}
	if arrays := len(f.free) + 1; arrays != 2 || f.residual == nil {
		t.Errorf("after 50 pushes there are %d arrays", arrays)
	}
}

// With two open pushes at a time, five arrays are enough, whatever becomes of the pushes, and
// although residuals are given up and restored.
func TestMemoryOfPushesIsUsedAgain(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "int8"), layout, 1)
	grads := drawn(0, layout.Values, 1)
	fates := []func(kintsugi.PushID){f.Counted, f.Dropped}
	for version := range 60 {
		send(f, pushOf(2*version), grads)
		send(f, pushOf(2*version+1), grads)
		switch version % 10 {
		case 7:
			f.Drop()
		case 8:
			f.Restore(grads)
		default:
			first := version % 2
			fates[version/2%2](pushOf(2*version + first))
			fates[version/3%2](pushOf(2*version + 1 - first))
		}
		arrays := len(f.free)
		if f.residual != nil {
			arrays++
		}
		if arrays > 5 || len(f.open) > 0 {
			t.Fatalf("after %d pushes there are %d arrays, and %d open pushes", 2*version+2, arrays, len(f.open))
		}
	}
}

// What is saved does not depend on what the memory held, although there is no residual.
func TestWithoutAResidualZerosAreSaved(t *testing.T) {
	layout := testLayout(t)
	f := NewFeedback(mustParse(t, "int8"), layout, 1)
	dst := drawn(0, layout.Values, 1)
	f.Save(dst)
	if !slices.Equal(dst, make([]float32, layout.Values)) {
		t.Error("something is saved, and nothing was sent")
	}
	send(f, pushOf(0), drawn(0, layout.Values, 2)) // it has taken nothing
	f.Save(dst)
	if !slices.Equal(dst, make([]float32, layout.Values)) || f.Norm() != 0 {
		t.Error("something is saved, and the push has taken nothing")
	}
}

// Seeds stay the same in every release, since a worker that comes back with another one must encode
// the same gradient to the same bytes. They differ by all that distinguishes two encodings.
func TestSeedsDependOnWhatIsEncoded(t *testing.T) {
	id := kintsugi.PushID{Line: 1, Slot: 2, Incarnation: 3, Version: 5, Sequence: 7}
	seed := SeedOf(11, id, 13)
	if want := uint64(0x6b0e1727a4cedc28); seed != want {
		t.Errorf("the seed is %#x, it was %#x", seed, want)
	}
	again := id
	again.Line, again.Incarnation = 9, 9
	if SeedOf(11, again, 13) != seed {
		t.Error("another life of the worker has another seed")
	}
	others := map[uint64]string{seed: "itself"}
	note := func(what string, x uint64) {
		if same, ok := others[x]; ok {
			t.Errorf("%s has the seed of %s", what, same)
		}
		others[x] = what
	}
	note("another run", SeedOf(12, id, 13))
	note("another chunk", SeedOf(11, id, 14))
	for _, change := range []struct {
		what string
		do   func(*kintsugi.PushID)
	}{
		{"another slot", func(p *kintsugi.PushID) { p.Slot++ }}, {"another version", func(p *kintsugi.PushID) { p.Version++ }},
		{"another sequence", func(p *kintsugi.PushID) { p.Sequence++ }}, {"swapped", func(p *kintsugi.PushID) { p.Version, p.Sequence = 7, 5 }},
	} {
		other := id
		change.do(&other)
		note(change.what, SeedOf(11, other, 13))
	}
}

// Workers with different optima meet at the mean of them. There, only the sum of their gradients is
// zero. A codec that shrinks each of them differently stops elsewhere, unless what it leaves out is
// fed back.
func TestFeedbackFindsTheMinimumWhereCodecsAloneDoNot(t *testing.T) {
	layout := testLayout(t)
	for _, spec := range []string{"sign", "topk:0.05", "powersgd:1", "int8"} {
		with, without := distanceToMinimum(t, layout, spec), distanceToMinimum(t, layout, spec+"-nofeedback")
		if with > without/4 {
			t.Errorf("%s ends %g from the minimum with feedback, and %g without", spec, with, without)
		}
	}
}

// distanceToMinimum returns how far four workers end from the minimum of the mean of ‖w − tᵢ‖²/2.
func distanceToMinimum(t *testing.T, layout *kintsugi.Layout, spec string) float64 {
	const workers, steps = 4, 800
	w, mean := make([]float32, layout.Values), make([]float32, layout.Values)
	var optima [workers][]float32
	var feedback [workers]*Feedback
	for i := range optima {
		optima[i] = drawn(1, layout.Values, uint64(i))
		feedback[i] = NewFeedback(mustParse(t, spec), layout, uint64(i))
		for j, v := range optima[i] {
			mean[j] += v / workers
		}
	}
	for step := range steps {
		rate := 0.05 / (1 + float32(step)/100)
		sum := make([]float32, len(w))
		for i, f := range feedback {
			grads := make([]float32, len(w))
			for j := range grads {
				grads[j] = w[j] - optima[i][j]
			}
			_, got := send(f, pushOf(step), grads)
			f.Counted(pushOf(step))
			add(sum, sum, got)
		}
		for j, g := range sum {
			w[j] -= rate * g / workers
		}
	}
	return math.Sqrt(kernels.SquaredDistance(w, mean))
}
