package server

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// fewOf is a chunk of a push that names few values, apart by half of apart on average. In a third of
// the versions some chunks name many, and a step on those is one on the whole chunk.
func fewOf(c kintsugi.Chunk, p kintsugi.PushID, apart int) landedChunk {
	rng := rand.New(rand.NewPCG(uint64(c.Lo), uint64(math.Float32bits(gradient(p, c.Lo)))))
	x := make([]float32, c.Len())
	for i := range x {
		x[i] = gradient(p, c.Lo+i)
	}
	var runs []kernels.Run
	switch {
	case p.Version%3 == 0 && rng.IntN(8) == 0:
		apart = 1
	case len(x) < 256:
		apart = 1 << 30 // few of few values are none
	}
	for lo := rng.IntN(apart); lo < len(x); {
		hi := min(lo+1+rng.IntN(12), len(x))
		runs = append(runs, kernels.Run{Lo: int32(lo), Hi: int32(hi)})
		lo = hi + rng.IntN(apart)
	}
	return landedChunk{have: true, encoding: kernels.Sparse32, data: kernels.AppendRuns(nil, x, runs)}
}

// counting is a device that counts the steps on whole chunks and those on less.
type counting struct {
	kernels.Device
	chunks      []kintsugi.Chunk
	whole, less atomic.Int32
}

func (c *counting) Step(s *kernels.Step) (kernels.Products, error) {
	if slices.ContainsFunc(c.chunks, func(x kintsugi.Chunk) bool { return x.Len() == len(s.Params) }) {
		c.whole.Add(1)
	} else {
		c.less.Add(1)
	}
	return c.Device.Step(s)
}

// Where versions have marks, a step computes only what gradients name. It has the same bits and
// by-products as one that computes everything, whatever happens meanwhile: in the version, in its
// sum, in what is outside the process, and in the versions that somebody still reads. What has no
// mark since a version is what that version has.
func TestStepsOnFewValuesAreTheSame(t *testing.T) {
	race.Skip(t)
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{100, 1212}}, {Name: "b", Shape: []int{8, 1010}}, {Name: "c", Shape: []int{7}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		rule := []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleAdagrad, kintsugi.RuleLazyAdam}[i%3]
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		d := &counting{Device: kernels.Best(), chunks: l.Chunks}
		cfg := Config{Layout: l, Device: d, Marks: true, Schedule: conductor.Schedule{Rule: rule, LearningRate: 0.01}}
		replicas, apart := 1, 3000
		switch i / 3 {
		case 1:
			cfg.Outside = openOutside(t)
		case 2:
			replicas, apart = 2, 16000 // whose sums may be of few values too
		}
		few := newDeskWith(t, cfg, replicas, i > 0)
		cfg.Marks, cfg.Outside, cfg.Device = false, nil, kernels.Best()
		whole := newDeskWith(t, cfg, replicas, false)
		few.few, whole.few = apart, apart
		var history [][]float32 // by version
		var reads []*reading
		parts, named := 0, 0 // of sums, and how many of them are of few values
		for n := range 6 * len(stories) {
			s := stories[0]
			if n%3 == 2 {
				s = stories[n/3%len(stories)]
			}
			a, b := s.tell(few, rng), s.tell(whole, rng)
			few.release()
			whole.release()
			seen := few.seen(a)
			few.do(func() {
				if s := few.r.sum; s != nil {
					parts += len(s.few)
					for _, b := range s.few {
						named += min(1, len(b))
					}
				}
			})
			if err := seen.same(whole.seen(b)); err != nil {
				t.Fatalf("rule %v, step %d, in which %s: %v", rule, n+1, s.name, err)
			}
			history = append(history, seen.arrays[0])
			few.wantMarks(history)
			if o := few.r.cfg.Outside; o != nil {
				few.wantFound(o)
			}
			if rng.IntN(3) == 0 && len(reads) < 2 {
				r, err := few.read()
				if err != nil {
					t.Fatal(err)
				}
				reads = append(reads, r)
			}
			if len(reads) > 0 && rng.IntN(3) == 0 {
				k := rng.IntN(len(reads))
				if !reads[k].unchanged() {
					t.Fatalf("rule %v, step %d: version %d, which is read, has changed", rule, n+1, reads[k].x.step)
				}
				few.r.versions.unpinWhole(reads[k].x, reads[k].bank)
				reads = slices.Delete(reads, k, k+1)
			}
		}
		for _, r := range reads {
			few.r.versions.unpinWhole(r.x, r.bank)
		}
		if replicas > 1 && (4*named < parts || named == parts) {
			t.Errorf("rule %v: %d of %d parts of sums are of few values", rule, named, parts)
		}
		if w, l := d.whole.Load(), d.less.Load(); 4*l < w || w == 0 {
			t.Errorf("rule %v: %d steps on whole chunks, %d on less", rule, w, l)
		}
	}
}

// wantMarks checks the marks of the released version. history has the parameters of all versions from
// the first step on.
func (x *desk) wantMarks(history [][]float32) {
	x.Helper()
	v, _ := x.r.versions.pin(0)
	defer x.r.versions.unpin(v)
	now := history[len(history)-1]
	for i, c := range x.r.cfg.Layout.Chunks {
		for s := range kernels.Spots(c.Len()) {
			lo := c.Lo + s*kernels.Spot
			hi := min(lo+kernels.Spot, c.Hi)
			since := v.marks.first + kintsugi.Step(v.marks.since[x.r.versions.spots[i]+s])
			for was := max(since, 1); was < v.step; was++ {
				if !slices.Equal(history[was-1][lo:hi], now[lo:hi]) {
					x.Fatalf("values [%d, %d) of version %d are marked as those of version %d, and differ from version %d", lo, hi, v.step, since, was)
				}
			}
		}
	}
}

// What is known of arrays ends where versions do not follow from one another by a step.
func TestNothingIsKnownOfArraysInAnotherEpoch(t *testing.T) {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{100}}})
	if err != nil {
		t.Fatal(err)
	}
	outside := make([]byte, 400)
	for name, ends := range map[string]func(v *versions){
		"a line begins":             func(v *versions) { v.wait(); v.adopt(2) },
		"a version comes whole":     func(v *versions) { v.install(v.take(7)) },
		"memory outside is emptied": func(v *versions) { v.forgetAll() },
	} {
		v := newVersions(l, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))}, 0)
		v.publish(v.take(0))
		for step := range kintsugi.Step(4) {
			x := v.take(step + 1)
			x.stepped, x.copy = true, outside
			v.applied(x)
			v.publish(nil)
		}
		known := func(h holding) bool { return h.epoch == v.epoch }
		x := v.take(5)
		if !known(x.had[paramsArray]) || x.had[paramsArray].step != 3 || !known(v.outside[&outside[0]]) {
			t.Fatalf("%s: before it, an array holds %+v in epoch %d", name, x.had, v.epoch)
		}
		v.discard(x)
		if x = v.take(5); known(x.had[paramsArray]) {
			t.Errorf("%s: something is known of an array that was being written", name)
		}
		v.discard(x)
		ends(v)
		for range v.made {
			if y := v.take(9); known(y.had[paramsArray]) {
				t.Errorf("%s: something is known after it: %+v", name, y.had)
			}
		}
		if known(v.forget(outside)) {
			t.Errorf("%s: something is known of the array outside", name)
		}
	}
}
