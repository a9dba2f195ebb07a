package rows

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

func describe(t *testing.T, name string, in model.Input) *model.Description {
	t.Helper()
	d, err := model.Lookup(name, in)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// someRatings returns ratings, of which the last user has given none.
func someRatings(users, items, n int) *data.Ratings {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	r := &data.Ratings{Users: users, Items: items}
	for range n {
		r.User, r.Item = append(r.User, int32(rng.IntN(users-1))), append(r.Item, int32(rng.IntN(items)))
		r.Value = append(r.Value, float32(rng.NormFloat64()))
	}
	return r
}

// TestRowsAreSetToTheMinimumByOneOwnerEach: after the turns of all slots, the derivative of
// Σ(error² + λ·‖row‖²) is zero at each row of the side whose turn it is. Nothing of the other side
// is named, and no chunk is named twice.
func TestRowsAreSetToTheMinimumByOneOwnerEach(t *testing.T) {
	ratings := someRatings(60, 40, 700)
	for _, name := range []string{"mf:als,rank=3,decay=0.3", "mf:als,rank=24,decay=0.3"} { // in the second, a row is longer than a chunk
		d := describe(t, name, model.Input{Users: 60, Items: 40})
		params, grads := make([]float32, d.Values()), make([]float32, d.Values())
		if err := d.Init(1, params); err != nil {
			t.Fatal(err)
		}
		layout, err := kintsugi.NewLayout(d.Tensors())
		if err != nil {
			t.Fatal(err)
		}
		const slots = 3
		for version := range kintsugi.Step(2) {
			next, owner := slices.Clone(params), make(map[int]int)
			for slot := range slots {
				a, err := NewAlternate(d, ratings, slots)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := a.Gradient(t.Context(), params, grads, kintsugi.PushID{Slot: kintsugi.Slot(slot), Version: version}); err != nil {
					t.Fatal(err)
				}
				for i, g := range grads {
					if math.Float32bits(g) == 0 {
						continue
					}
					next[i] = g
					c := slices.IndexFunc(layout.Chunks, func(c kintsugi.Chunk) bool { return i < c.Hi })
					if before, ok := owner[c]; ok && before != slot || layout.Chunks[c].Tensor != int(version) {
						t.Fatalf("%s: value %d on version %d was named by slots %d and %d", name, i, version, before, slot)
					}
					owner[c] = slot
				}
			}
			wantMinimum(t, d, ratings, next, int(version))
			params = next
		}
		for k := range d.Factors.Width() {
			if x := params[59*d.Factors.Width()+k]; x != 0 {
				t.Errorf("%s: a user without ratings has %v in place %d", name, x, k)
			}
		}
	}
}

// wantMinimum fails unless the derivative by each row of a side is zero.
func wantMinimum(t *testing.T, d *model.Description, r *data.Ratings, params []float32, side int) {
	t.Helper()
	f := d.Factors
	w := f.Width()
	slope, size := make([]float64, len(params)), 0.0
	for i, v := range r.Value {
		u, j := int(r.User[i])*w, (f.Users+int(r.Item[i]))*w
		x, y := params[u:u+w], params[j:j+w]
		at := [2]int{u, j}[side]
		if side == 1 {
			x, y = y, x
		}
		e := float64(v) - float64(x[0]) - float64(y[0])
		for k := 1; k < w; k++ {
			e -= float64(x[k]) * float64(y[k])
		}
		for k := range w {
			by := 1.0
			if k > 0 {
				by = float64(y[k])
			}
			slope[at+k] += -e*by + f.Decay*float64(x[k])
			size = max(size, math.Abs(e*by))
		}
	}
	for i, s := range slope {
		if math.Abs(s) > 1e-4*size {
			t.Fatalf("the derivative by value %d is %g, errors are up to %g", i, s, size)
		}
	}
}

func someDocuments(words int, lengths ...int) *data.Documents {
	rng := rand.New(rand.NewPCG(9, uint64(words)))
	d := &data.Documents{Start: []int{0}}
	for _, n := range lengths {
		for range n {
			d.Words = append(d.Words, int32(rng.IntN(words)))
		}
		d.Start = append(d.Start, len(d.Words))
	}
	return d
}

// obviousGibbs is the textbook's sweep over all documents, which counts again for each token.
func obviousGibbs(p model.Topics, docs *data.Documents, topic []int, seed, version uint64) (loss float64) {
	for d := range docs.Len() {
		for i := docs.Start[d]; i < docs.Start[d+1]; i++ {
			u := uniform(seed, version, uint64(i))
			if topic[i] == 0 {
				topic[i] = 1 + int(u*float64(p.Topics))
				loss += math.Log(float64(p.Words))
				continue
			}
			weight, sum := make([]float64, p.Topics), 0.0
			for k := range weight {
				var word, doc, all float64
				for j, z := range topic {
					if j == i || z != k+1 {
						continue
					}
					all++
					if docs.Words[j] == docs.Words[i] {
						word++
					}
					if j >= docs.Start[d] && j < docs.Start[d+1] {
						doc++
					}
				}
				weight[k] = (word + p.Beta) * (doc + p.Alpha) / (all + float64(p.Words)*p.Beta)
				sum += weight[k]
			}
			loss -= math.Log(sum / (float64(docs.Start[d+1]-docs.Start[d]-1) + float64(p.Topics)*p.Alpha))
			at := u * sum
			for topic[i] = 1; at >= weight[topic[i]-1]; topic[i]++ {
				at -= weight[topic[i]-1]
			}
		}
	}
	return loss / float64(len(docs.Words))
}

// TestASweepOfOneSlotIsTheTextbooks, token by token, starting without assignments.
func TestASweepOfOneSlotIsTheTextbooks(t *testing.T) {
	docs := someDocuments(12, 9, 0, 30, 1, 17)
	d := describe(t, "lda:topics=4,alpha=0.3,beta=0.2", model.Input{Words: 12, Tokens: 57})
	g, err := NewGibbs(d, docs, 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	params, grads, topic := make([]float32, d.Values()), make([]float32, d.Values()), make([]int, 57)
	for version := range kintsugi.Step(6) {
		loss, examples, err := g.Gradient(t.Context(), params, grads, kintsugi.PushID{Version: version})
		if err != nil || examples != 57 {
			t.Fatalf("%d examples, %v", examples, err)
		}
		want := obviousGibbs(*d.Topics, docs, topic, 5, uint64(version))
		if math.Abs(loss-want) > 1e-9 {
			t.Errorf("version %d: the loss is %v, want %v", version, loss, want)
		}
		counts := make([]float32, 12*4)
		for i := range params {
			params[i] += grads[i]
		}
		for i, z := range topic {
			if params[len(counts)+i] != float32(z) {
				t.Fatalf("version %d: token %d has topic %v, want %d", version, i, params[len(counts)+i], z)
			}
			counts[int(docs.Words[i])*4+z-1]++
		}
		if !slices.Equal(counts, params[:len(counts)]) {
			t.Fatalf("version %d: the counts are not those of the assignments", version)
		}
	}
}

// TestAStepMakesAnyStateConsistent: whatever the parameters are, after the steps of all slots each
// token has a topic, and the counts are those of the assignments.
func TestAStepMakesAnyStateConsistent(t *testing.T) {
	docs := someDocuments(30, 5, 200, 1, 1, 0, 80, 40)
	d := describe(t, "lda:topics=5", model.Input{Words: 30, Tokens: 327})
	rng := rand.New(rand.NewPCG(1, 1))
	params, next, grads := make([]float32, d.Values()), make([]float32, d.Values()), make([]float32, d.Values())
	for i := range params {
		params[i] = float32(rng.IntN(200) - 100)
	}
	copy(next, params)
	const slots = 4
	for slot := range kintsugi.Slot(slots) {
		g, err := NewGibbs(d, docs, slots, 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := g.Gradient(t.Context(), params, grads, kintsugi.PushID{Slot: slot, Version: 9}); err != nil {
			t.Fatal(err)
		}
		for i, v := range grads {
			next[i] += v
		}
	}
	counts := make([]float32, 30*5)
	for i, z := range next[len(counts):] {
		if !(z >= 1 && z <= 5) || z != float32(int(z)) {
			t.Fatalf("token %d has topic %v", i, z)
		}
		counts[int(docs.Words[i])*5+int(z)-1]++
	}
	if !slices.Equal(counts, next[:len(counts)]) {
		t.Errorf("the counts are %v, want %v", next[:len(counts)], counts)
	}
}

// TestHeldOutIsTheLikelihoodOfTheOtherHalf for known topics: each word belongs to one of two
// topics, and each document has one.
func TestHeldOutIsTheLikelihoodOfTheOtherHalf(t *testing.T) {
	p := model.Topics{Words: 6, Tokens: 1, Topics: 2, Alpha: 1e-6, Beta: 1e-9}
	params := make([]float32, 6*2+1)
	for w := range 6 {
		params[w*2+w/3] = 10
	}
	docs := &data.Documents{Start: []int{0, 4, 5, 11}, Words: []int32{0, 1, 2, 0, 5, 3, 4, 5, 3, 4, 5}}
	got, err := HeldOut(t.Context(), p, params, docs)
	if err != nil || math.Abs(got-math.Log(3)) > 1e-4 { // a topic has three equally likely words
		t.Errorf("%v nats a word (%v), want %v", got, err, math.Log(3))
	}
	p.Alpha, p.Beta = 0.1, 0.1
	if got, _ = HeldOut(t.Context(), p, make([]float32, 13), docs); math.Abs(got-math.Log(6)) > 1e-12 {
		t.Errorf("without counts: %v nats a word, want %v", got, math.Log(6))
	}
	if got, _ = HeldOut(t.Context(), p, params, &data.Documents{Start: []int{0, 1}, Words: []int32{2}}); !math.IsNaN(got) {
		t.Errorf("documents of one word: %v, want NaN", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := HeldOut(ctx, p, params, docs); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestStepsEndWithTheirContext: a step that can no longer count is not waited for.
func TestStepsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := describe(t, "mf:als", model.Input{Users: 5, Items: 4})
	a, err := NewAlternate(d, someRatings(5, 4, 20), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Gradient(ctx, make([]float32, d.Values()), make([]float32, d.Values()), kintsugi.PushID{}); !errors.Is(err, context.Canceled) {
		t.Errorf("least squares: %v", err)
	}
	docs := someDocuments(10, 20)
	d = describe(t, "lda", model.Input{Words: 10, Tokens: 20})
	g, err := NewGibbs(d, docs, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Gradient(ctx, make([]float32, d.Values()), make([]float32, d.Values()), kintsugi.PushID{}); !errors.Is(err, context.Canceled) {
		t.Errorf("sampling: %v", err)
	}
	for name, err := range map[string]error{
		"short parameters": second(g.Gradient(t.Context(), make([]float32, 3), make([]float32, d.Values()), kintsugi.PushID{})),
		"no room":          second(a.Gradient(t.Context(), make([]float32, 81), nil, kintsugi.PushID{})),
	} {
		if !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewGibbs(d, someDocuments(100, 20), 1, 1); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("documents with other words: %v", err)
	}
	if _, err := NewAlternate(d, someRatings(5, 4, 20), 1); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("ratings for topics: %v", err)
	}
}

func second(_ float64, _ int, err error) error { return err }
