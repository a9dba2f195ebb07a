package kernelstest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// chunkLengths are the lengths of the chunks of a part of a model. Some chunks end within a vector,
// within a block that shares a scale, and within a tile.
var chunkLengths = []int{5, 64, 1, 256, 300, 7, bulk, 4}

// RunArrays tests that the arrays of an accelerator keep the contract of kernels.Arrays: every
// operation has the bits of [Apart] on kernels.Host.
func RunArrays(t *testing.T, a kernels.Accelerator) {
	for _, rule := range Rules {
		t.Run("steps of "+rule.String(), func(t *testing.T) {
			for _, c := range arrayCases {
				if !c.keep || rule == kernels.Assign {
					c.rule = rule
					c.compare(t, a)
				}
			}
		})
	}
	t.Run("copies", func(t *testing.T) { testCopies(t, a) })
	t.Run("no chunks", func(t *testing.T) {
		x := a.NewArrays(nil)
		p, err := x.Step(&kernels.ArrayStep{Rule: kernels.SGD, Params: x.NewArray(), Next: x.NewArray()})
		if err != nil || len(p) != 0 {
			t.Errorf("a step on nothing: %v, error %v", p, err)
		}
	})
}

// arrayCase describes a step on arrays.
type arrayCase struct {
	rule                             kernels.Rule
	encodings                        []kernels.Encoding // of the operands
	place                            int
	from, update, keep, again        bool // again: landings have held another gradient before
	dot, displacement, saved, behind bool // behind: some chunks have other corrections
}

var arrayCases = []arrayCase{
	{encodings: []kernels.Encoding{kernels.FP32, kernels.FP32, kernels.FP32}, update: true, dot: true, displacement: true, saved: true},
	{encodings: []kernels.Encoding{kernels.Int8, kernels.BF16, kernels.Sign, kernels.FP16, kernels.Int8, kernels.Int8}, place: twoBuffers, again: true, dot: true},
	{encodings: []kernels.Encoding{kernels.Sparse16, kernels.FP32, kernels.Sparse32, kernels.Sparse16, kernels.Int8}, update: true, behind: true},
	{encodings: []kernels.Encoding{kernels.FP32, kernels.LowRank, kernels.Sparse32}, place: inPlace, behind: true, saved: true},
	{encodings: []kernels.Encoding{kernels.Sparse32}, again: true, displacement: true},
	{from: true, dot: true},
	{keep: true, update: true, saved: true, encodings: []kernels.Encoding{kernels.FP32}},
	{},
}

// compare does three steps of the case in a row, on a and on Apart, and compares everything that
// they leave.
func (c arrayCase) compare(t *testing.T, a kernels.Accelerator) {
	t.Helper()
	got, want := c.run(t, a), c.run(t, Apart(kernels.Host))
	for name, x := range want.arrays {
		shape{rule: c.rule}.same(t, a, fmt.Sprintf("%+v: %s", c, name), got.arrays[name], x)
	}
	for i := range want.products {
		shape{rule: c.rule, n: i}.sameProducts(t, a, got.products[i], want.products[i])
	}
}

type arrayResult struct {
	arrays   map[string][]float32
	products []kernels.Products
}

// run does what the case describes, with the same numbers each time.
func (c arrayCase) run(t *testing.T, a kernels.Accelerator) arrayResult {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(c.rule), uint64(len(c.encodings))))
	x := a.NewArrays(chunkLengths)
	all := make(map[string]kernels.Array)
	array := func(name string) kernels.Array {
		y := x.NewArray()
		all[name] = y
		host := y.Host()
		for i := range host {
			host[i] = value(rng, ordinary)
			if name == "state 1" && host[i] < 0 {
				host[i] = -host[i] // a second moment
			}
		}
		must(t, y.Send())
		return y
	}
	s := kernels.ArrayStep{Rule: c.rule, Scale: 0.25, Params: array("params"), WantDot: c.dot, WantDisplacement: c.displacement, WantSaved: c.saved}
	s.Previous, s.Saved = array("previous"), array("saved")
	switch s.Next = s.Params; c.place {
	case beside:
		s.Next = x.NewArray()
		all["next"] = s.Next
	case twoBuffers:
		s.Next = s.Previous
	}
	for i := range c.rule.States() {
		s.State[i] = array(fmt.Sprint("state ", i))
		if s.NextState[i] = s.State[i]; c.place == beside {
			s.NextState[i] = x.NewArray()
			all[fmt.Sprint("next state ", i)] = s.NextState[i]
		}
	}
	if c.update {
		s.Update = x.NewArray()
		all["update"] = s.Update
	}
	if c.from {
		s.From = array("from")
	}
	var landings []kernels.Landing
	for _, e := range c.encodings {
		landings = append(landings, landed(t, x, rng, e, c.again))
	}
	s.Chunks = c.chunks(landings)
	var r arrayResult
	for range 3 {
		p, err := x.Step(&s)
		must(t, err)
		r.products = append(r.products, p...)
	}
	r.arrays = make(map[string][]float32)
	for name, y := range all {
		must(t, y.Fetch())
		r.arrays[name] = slices.Clone(y.Host()) // the slice lives no longer than y
	}
	return r
}

// chunks returns what a step does with each chunk.
func (c arrayCase) chunks(landings []kernels.Landing) []kernels.ArrayChunk {
	chunks := make([]kernels.ArrayChunk, len(chunkLengths))
	for i := range chunks {
		k := &chunks[i]
		k.Scalars = kernels.Scalars{LearningRate: 0.013, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.021, Correction1: 0.271, Correction2: 0.002996}
		if c.behind && i%3 == 1 {
			k.Scalars.Correction1, k.Scalars.Correction2 = 0.19, 0.001999
		}
		if k.Keep = c.keep && i%2 == 0 || c.rule == kernels.Assign && len(landings) == 0 && !c.from; k.Keep || c.from {
			continue
		}
		for j, l := range landings {
			k.Operands = append(k.Operands, kernels.LandedOperand{Weight: 1 + float32(j)/8, Landing: l})
		}
		if c.rule == kernels.Assign {
			k.Operands = k.Operands[:1]
		}
	}
	return chunks
}

// landed returns a gradient in an encoding. If again is set, its memory has held another gradient.
func landed(t *testing.T, x kernels.Arrays, rng *rand.Rand, e kernels.Encoding, again bool) kernels.Landing {
	t.Helper()
	l := x.NewLanding()
	if again {
		for i, n := range chunkLengths {
			must(t, l.Put(i, kernels.FP32, Payload(rng, kernels.FP32, n)))
		}
		l.Clear()
	}
	for i := range chunkLengths {
		i = (i + 3) % len(chunkLengths) // they arrive in another order
		p := Payload(rng, e, chunkLengths[i])
		must(t, l.Put(i, e, p))
		clear(p) // the memory belongs to the caller again
	}
	return l
}

func testCopies(t *testing.T, a kernels.Accelerator) {
	x := a.NewArrays(chunkLengths)
	from, to := x.NewArray(), x.NewArray()
	for i := range from.Host() {
		from.Host()[i], to.Host()[i] = float32(i), -1
	}
	must(t, from.Send())
	must(t, to.Send())
	must(t, x.Copy(to, from, []int{0, 3, 4, 7}))
	clear(to.Host())
	must(t, to.Fetch())
	at := 0
	for i, n := range chunkLengths {
		for j := at; j < at+n; j++ {
			want := float32(-1)
			if i == 0 || i == 3 || i == 4 || i == 7 {
				want = float32(j)
			}
			if got := to.Host()[j]; got != want {
				t.Fatalf("%s: after a copy of four chunks, value %d in chunk %d is %v; want %v", a.Name(), j, i, got, want)
			}
		}
		at += n
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
