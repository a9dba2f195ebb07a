package kept

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

func push(version kintsugi.Step, sequence uint32) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Incarnation: 1, Version: version, Sequence: sequence}
}

// An outage of ten minutes takes no more memory than one of a second, and no gradient is missing:
// the means that are offered, each times the number of its gradients, add up to the sum of all.
func TestTenMinutesOfAnOutageFitInTheMemoryOfASecond(t *testing.T) {
	const values, most, every = 50, 4, 25 * time.Millisecond
	for _, rule := range kintsugi.KeepRules() {
		q := New(Config{Rule: rule, Values: values, Most: most})
		rng := rand.New(rand.NewPCG(1, 2))
		sum := make([]float64, values)
		n, greatest := uint64(0), 0
		g := make([]float32, values)
		for now := time.Duration(0); now < 10*time.Minute; now += every {
			for i := range g {
				g[i] = rng.Float32() - 0.3
				sum[i] += float64(g[i])
			}
			q.Keep(push(7, uint32(n)), 0.5, 32, g, n == 0)
			n++
			greatest = max(greatest, q.Bytes())
		}
		t.Logf("%v: %d gradients in 10 minutes, at most %d bytes kept, %d of them for each parameter", rule, n, greatest, greatest/values)
		if greatest > most*4*values || q.Gradients() != n {
			t.Errorf("%v: %d bytes, %d of %d gradients", rule, greatest, q.Gradients(), n)
		}
		list, dropped := q.Take()
		if want := map[bool]int{true: most, false: 2}[rule == kintsugi.KeepDecay]; len(list) != want || dropped != 0 || q.Len() != 0 {
			t.Errorf("%v: %d pushes, want %d; %d dropped, %d left", rule, len(list), want, dropped, q.Len())
		}
		merged := uint64(0)
		for i, x := range list {
			if x.First != (i == 0) || x.First && x.Merged != 1 || x.Examples() != 32 || x.Loss != 0.5 || i > 0 && x.ID.Compare(list[i-1].ID) <= 0 {
				t.Errorf("%v: push %d is %+v", rule, i, x)
			}
			merged += uint64(x.Merged)
			for k, v := range x.Values {
				if rule == kintsugi.KeepLocal {
					sum[k] -= float64(v) // with the rule sum, it is the sum
				} else {
					sum[k] -= float64(v) * float64(x.Merged)
				}
			}
		}
		for k, left := range sum {
			if math.Abs(left) > 1e-4*float64(n) { // a running mean in float32 rounds once for each gradient
				t.Fatalf("%v: value %d of %d gradients misses %v", rule, k, n, left)
			}
		}
		if merged != n {
			t.Errorf("%v: %d gradients are offered of %d", rule, merged, n)
		}
	}
}

// If an outage begins before the gradients of an earlier one are offered, both are kept. If there
// is no room, the oldest version is given up.
func TestANewerVersionPushesTheOldestOut(t *testing.T) {
	q := New(Config{Values: 1, Most: 3})
	for i := range uint32(5) {
		q.Keep(push(1, i), 0, 1, []float32{1}, i == 0)
	}
	list, _ := q.Take()
	q.Back(list[1:])
	if oldest, ok := q.Oldest(); !ok || oldest != 1 || q.Gradients() != 4 {
		t.Fatalf("version %d, %v, %d gradients", oldest, ok, q.Gradients())
	}
	for i := range uint32(4) {
		q.Keep(push(2, i), 0, 1, []float32{2}, i == 0)
	}
	list, dropped := q.Take()
	total := dropped
	for _, g := range list {
		if total += g.Merged; g.Values[0] != float32(g.ID.Version) {
			t.Errorf("%+v mixes versions", g)
		}
	}
	if len(list) > 3 || dropped == 0 || total != 8 {
		t.Errorf("%d pushes, %d dropped, %d in all", len(list), dropped, total)
	}
}

// A gradient of which a head may have some bytes does not change, whatever is kept later. Keep
// returns the id under which a gradient will be offered.
func TestWhatWasSentStaysAsItIs(t *testing.T) {
	for _, rule := range kintsugi.KeepRules() {
		q := New(Config{Rule: rule, Values: 1, Most: 4})
		in := make(map[kintsugi.PushID]int)
		keep := func(from, to uint32) {
			for i := from; i < to; i++ {
				in[q.Keep(push(7, i), 0, 1, []float32{float32(i)}, false)]++
			}
		}
		keep(0, 20)
		list, _ := q.Take()
		list[0].Sent = true
		was := list[0].Values[0]
		q.Back(list)
		keep(20, 40)
		list, _ = q.Take()
		total := 0
		for i, g := range list {
			if total += int(g.Merged); int(g.Merged) != in[g.ID] {
				t.Errorf("%v: %v is the mean of %d gradients, and %d were said to be in it", rule, g.ID, g.Merged, in[g.ID])
			}
			if i == 0 && (g.Values[0] != was || !g.Sent) {
				t.Errorf("%v: what was sent has become %v from %v", rule, g.Values[0], was)
			}
		}
		if total != 40 || len(list) > 4 {
			t.Errorf("%v: %d gradients in %d pushes", rule, total, len(list))
		}
	}
}

// A worker that begins again on the same parameters goes along its whole path. One that has lost
// its way forgets the path, but not the gradient that was under way before.
func TestAPathIsTheSumOfItsGradients(t *testing.T) {
	q := New(Config{Rule: kintsugi.KeepLocal, Values: 2, Most: 4})
	for i := range uint32(5) {
		q.Keep(push(7, i), 0, 1, []float32{float32(i), 1}, i == 0)
	}
	sum := [2]float32{}
	q.Along(push(7, 9), func(g Gradient) { sum[0] += g.Values[0]; sum[1] += g.Values[1] })
	q.Along(push(8, 0), func(g Gradient) { t.Errorf("%v is on another version", g) })
	if sum != [2]float32{10, 5} || q.Len() != 2 {
		t.Errorf("the path is %v, in %d pushes", sum, q.Len())
	}
	q.Forget(push(7, 5))
	list, dropped := q.Take()
	if len(list) != 1 || !list[0].First || dropped != 4 || q.Gradients() != 0 {
		t.Errorf("%+v is left, %d dropped", list, dropped)
	}
}

// A worker's path goes on on a line that keeps its own. A step towards its end moves what stayed by
// as much as the path has moved it, from wherever it is now, and moves what came back older to
// where the path has ended. It is a single push for all gradients of the path, under an id of the
// new line, and their batches are not computed again. Values have one of two learning rates.
func TestAPathGoesOnOnTheLineThatKeepsItsOwn(t *testing.T) {
	const values = 8
	rates := []float32{0.25, 0.25, 0.25, 2, 2, 2, 2, 2}
	restored := []Part{{Range{2, 3}, 0.25}, {Range{3, 4}, 2}, {Range{7, 8}, 2}}
	back := func(i int) bool { return i == 2 || i == 3 || i == 7 }
	for _, later := range []kintsugi.Step{0, 2} { // by so many steps after the path the line begins
		q := New(Config{Rule: kintsugi.KeepLocal, Values: values, Most: 4})
		q.Keep(push(5, 0), 0, 1, make([]float32, values), false) // of another version
		was, end, base := make([]float32, values), make([]float32, values), make([]float32, values)
		for i := range was {
			was[i] = float32(i)
			end[i] = was[i]
			base[i] = was[i] + float32(later)
			if back(i) {
				base[i] = -100
			}
		}
		for k := range uint32(6) {
			g := make([]float32, values)
			for i := range g {
				g[i] = float32(i) - float32(k)/2 + 1
				end[i] -= rates[i] * g[i]
			}
			q.Keep(push(7, 3+k), float64(k), 2, g, k == 0)
			if k == 3 { // the session after the outage has broken too
				list, _ := q.Take()
				list[len(list)-1].Sent = true
				q.Back(list)
			}
		}
		to := push(7+later, 0)
		to.Line = 2
		id, ok := q.Onto(push(7, 3), to, restored, base, end)
		want := to
		if later == 0 {
			want.Sequence = 3 // the path's gradients begin there
		}
		list, dropped := q.Take()
		if !ok || id != want || dropped != 0 || len(list) != 2 || list[0].ID != push(5, 0) || list[1].ID != want {
			t.Fatalf("%d steps later: %v, %v, %d dropped, %+v", later, id, ok, dropped, list)
		}
		g := list[1]
		if g.First || g.Sent || g.Merged != 6 || g.Loss != 2.5 || g.Examples() != 2 || g.Moved != (later > 0) {
			t.Errorf("%d steps later: %+v", later, g)
		}
		for i, v := range g.Values {
			got, want := base[i]-rates[i]*v, end[i]+base[i]-was[i]
			if back(i) {
				want = end[i]
			}
			if got != want { // all are sums of a few powers of two
				t.Errorf("%d steps later: value %d comes to %v, want %v", later, i, got, want)
			}
		}
	}
}

// If there is no path, or it has led to gradients that are not finite, none goes on.
func TestNothingGoesOnThatLeadsNowhere(t *testing.T) {
	to := push(7, 0)
	to.Line = 2
	x := make([]float32, 1)
	q := New(Config{Rule: kintsugi.KeepLocal, Values: 1, Most: 4})
	if _, ok := q.Onto(push(7, 0), to, nil, x, x); ok {
		t.Error("a path of an empty queue goes on")
	}
	q.Keep(push(7, 0), 0, 1, []float32{1}, true)
	q.Keep(push(7, 1), 0, 1, []float32{1}, false)
	if _, ok := q.Onto(push(6, 0), to, nil, x, x); ok {
		t.Error("a path on another version goes on")
	}
	q.Forget(push(7, 2))
	if _, ok := q.Onto(push(7, 0), to, nil, x, x); ok {
		t.Error("a path that was forgotten goes on")
	}
	if list, _ := q.Take(); len(list) != 1 || !list[0].First || list[0].ID.Line != 1 {
		t.Errorf("%+v is left", list)
	}
}

func TestAGradientThatPointsApartIsUphill(t *testing.T) {
	g := Gradient{Values: []float32{1, -2}}
	if g.Uphill([]float32{1, -1}) || !g.Uphill([]float32{1, 1}) || g.Uphill([]float32{0, 0}) {
		t.Error("the sign of the product decides")
	}
}

// Whatever is kept, taken, put back and forgotten: every gradient is in one push or was dropped. A
// push has the mean loss and the mean number of examples of its gradients.
func TestEveryGradientIsKeptOnceOrDropped(t *testing.T) {
	for _, rule := range kintsugi.KeepRules() {
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 7))
			q := New(Config{Rule: rule, Values: 3, Most: rng.IntN(5)})
			in := make(map[kintsugi.PushID][]float64) // by push: the losses of its gradients
			of := make(map[kintsugi.PushID]uint64)    // by push: the examples of all of them
			at, kept, dropped := push(1, 0), uint32(0), uint32(0)
			for range 60 {
				switch rng.IntN(10) {
				case 0:
					at = push(at.Version+1, 0)
				case 1:
					list, d := q.Take()
					dropped += d
					if q.Len() != 0 || q.Gradients() != 0 || q.Bytes() != 0 {
						t.Fatalf("%v, seed %d: taken, and %d pushes of %d gradients are left", rule, seed, q.Len(), q.Gradients())
					}
					if len(list) > 0 && rng.IntN(2) == 0 { // one was counted
						kept -= list[0].Merged
						delete(in, list[0].ID)
						delete(of, list[0].ID)
						list = list[1:]
					}
					q.Back(list)
				case 2:
					if rng.IntN(4) == 0 {
						q.Forget(at)
						for id := range in {
							if i := slices.IndexFunc(q.list, func(g Gradient) bool { return g.ID == id }); i < 0 {
								delete(in, id)
								delete(of, id)
							}
						}
						if i := slices.IndexFunc(q.list, func(g Gradient) bool { return g.ID.Version == at.Version && !g.First }); i >= 0 {
							t.Fatalf("%v, seed %d: %+v is not forgotten", rule, seed, q.list[i])
						}
					}
				default:
					at.Sequence++
					loss, examples := rng.Float64(), 1+rng.IntN(100)
					id := q.Keep(at, loss, uint32(examples), []float32{1, 2, 3}, q.Len() == 0)
					kept++
					in[id] = append(in[id], loss)
					of[id] += uint64(examples)
				}
				held := uint32(0)
				for _, g := range q.list {
					held += g.Merged
					mean := 0.0
					for _, l := range in[g.ID] {
						mean += l / float64(len(in[g.ID]))
					}
					if int(g.Merged) != len(in[g.ID]) || math.Abs(g.Loss-mean) > 1e-9 {
						t.Fatalf("%v, seed %d: %+v, want %d gradients with a mean loss of %v", rule, seed, g, len(in[g.ID]), mean)
					}
					if examples := float64(of[g.ID]) / float64(g.Merged); math.Abs(float64(g.Examples())-examples) > 0.5 {
						t.Fatalf("%v, seed %d: a push of %v examples on average has %d", rule, seed, examples, g.Examples())
					}
					if sum := g.Values[2] / float32(map[bool]uint32{true: g.Merged, false: 1}[rule == kintsugi.KeepLocal]); math.Abs(float64(sum-3)) > 1e-5 {
						t.Fatalf("%v, seed %d: the values of %+v are not those of its gradients", rule, seed, g)
					}
				}
				if uint64(held) != q.Gradients() || held+dropped+q.dropped != kept || q.Bytes() != 4*3*len(q.list) || q.Len() > max(2, q.cfg.Most) {
					t.Fatalf("%v, seed %d: %d gradients in %d pushes of %d bytes, %d are said to be kept, %d and %d dropped, of %d", rule, seed, held, q.Len(), q.Bytes(), q.Gradients(), dropped, q.dropped, kept)
				}
				if oldest, ok := q.Oldest(); ok != (len(q.list) > 0) || ok && oldest != q.list[0].ID.Version {
					t.Fatalf("%v, seed %d: the oldest version is %d, %v", rule, seed, oldest, ok)
				}
			}
		}
	}
}

// Gradients that are merged while there is room for no more are spread over all pushes.
func TestGradientsAreSpreadOverThePushes(t *testing.T) {
	q := New(Config{Rule: kintsugi.KeepDecay, Values: 1, Most: 4})
	for i := range uint32(31) {
		q.Keep(push(7, i), 0, 1, []float32{1}, i == 0)
	}
	for _, g := range q.list {
		if want := map[bool]uint32{true: 1, false: 10}[g.First]; g.Merged != want {
			t.Errorf("%v consists of %d gradients, want %d", g.ID, g.Merged, want)
		}
	}
}
