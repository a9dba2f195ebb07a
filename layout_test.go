package kintsugi

import (
	"math"
	"math/rand/v2"
	"testing"
)

var lenet = []Tensor{
	{"conv1/w", []int{6, 1, 5, 5}}, {"conv1/b", []int{6}}, {"conv2/w", []int{16, 6, 5, 5}}, {"conv2/b", []int{16}},
	{"fc1/w", []int{400, 120}}, {"fc1/b", []int{120}}, {"fc2/w", []int{120, 84}}, {"fc2/b", []int{84}},
	{"fc3/w", []int{84, 10}}, {"fc3/b", []int{10}},
}

// Chunks cover the vector in order, never cross a tensor, stay under the limit, and hold whole rows
// unless a row is longer than the limit.
func TestChunksTileTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	models := [][]Tensor{lenet, {{"x", []int{1}}}, {{"big", []int{3, 1 << 20}}, {"b", []int{7}}}}
	for range 200 {
		var m []Tensor
		for i := range 1 + rng.IntN(6) {
			m = append(m, Tensor{string(rune('a' + i)), []int{1 + rng.IntN(40), 1 + rng.IntN(90), 1 + rng.IntN(3)}[:1+rng.IntN(3)]})
		}
		models = append(models, m)
	}
	for _, m := range models {
		l, err := NewLayout(m)
		if err != nil {
			t.Fatal(err)
		}
		limit := min(MaxChunkValues, max(MinChunkValues, l.Values/256))
		start := make([]int, len(m)+1)
		for i, x := range m {
			start[i+1] = start[i] + x.Values()
		}
		at := 0
		for i, c := range l.Chunks {
			if c.Lo != at || c.Len() < 1 || c.Len() > limit || c.Lo < start[c.Tensor] || c.Hi > start[c.Tensor+1] {
				t.Fatalf("chunk %d = %+v does not follow %d in tensor %v under %d values", i, c, at, m[c.Tensor], limit)
			}
			row := m[c.Tensor].RowLen()
			first, last := (c.Lo-start[c.Tensor])/row, (c.Hi-1-start[c.Tensor])/row
			if whole := (c.Lo-start[c.Tensor])%row == 0 && (c.Hi-start[c.Tensor])%row == 0; !whole && (row <= limit || first != last) {
				t.Fatalf("chunk %d = %+v cuts rows of %v", i, c, m[c.Tensor])
			}
			at = c.Hi
		}
		if at != l.Values {
			t.Fatalf("chunks end at %d of %d values", at, l.Values)
		}
		for n := 1; n < 9; n++ {
			next := ChunkID(0)
			for _, r := range l.Split(n) {
				lo, hi := l.Span(r)
				if r.Lo != next || r.Hi < r.Lo || hi-lo > l.Values/n+2*limit {
					t.Fatalf("%d shards: %v after chunk %d, %d of %d values", n, r, next, hi-lo, l.Values)
				}
				next = r.Hi
			}
			if int(next) != len(l.Chunks) {
				t.Fatalf("%d shards end at chunk %d of %d", n, next, len(l.Chunks))
			}
		}
	}
}

func TestLayoutRefusesBadTensors(t *testing.T) {
	for _, m := range [][]Tensor{nil, {{"", []int{1}}}, {{"a", nil}}, {{"a", []int{0}}}, {{"a", []int{1}}, {"a", []int{2}}}} {
		if l, err := NewLayout(m); err == nil {
			t.Errorf("NewLayout(%v) = %v, want an error", m, l)
		}
	}
}

// A shape may be a mistake, or damaged: its product overflows, or its chunks would take all memory.
func TestLayoutRefusesModelsOfAnySize(t *testing.T) {
	for _, shapes := range [][][]int{{{1 << 62}}, {{1 << 41, 1}}, {{1 << 32, 1 << 32}}, {{1 << 21, 1 << 21, 1 << 21, 2}}, {{1 << 40}, {1}}, {{3, 1 << 62}, {1 << 62}}} {
		var m []Tensor
		for i, shape := range shapes {
			m = append(m, Tensor{string(rune('a' + i)), shape})
		}
		if l, err := NewLayout(m); err == nil {
			t.Errorf("%v is a model of %d values", shapes, l.Values)
		}
	}
}

func TestTensorAt(t *testing.T) {
	l, err := NewLayout(lenet)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{0: "conv1/w", 149: "conv1/w", 150: "conv1/b", l.Values - 1: "fc3/b"} {
		if got := l.TensorAt(i); got != want {
			t.Errorf("value %d is in %q, want %q", i, got, want)
		}
	}
}

func TestRatesAreThoseOfNamedTensorsAndAgreedOn(t *testing.T) {
	l, err := NewLayout([]Tensor{{Name: "body", Shape: []int{3}}, {Name: "head", Shape: []int{2}}})
	if err != nil {
		t.Fatal(err)
	}
	x, err := l.WithRates(map[string]float32{"head": 0.25})
	if err != nil {
		t.Fatal(err)
	}
	if x.Rate(0) != 1 || x.Rate(1) != 0.25 || !x.Uneven() {
		t.Errorf("rates %v and %v", x.Rate(0), x.Rate(1))
	}
	if x.Fingerprint() != l.Fingerprint() {
		t.Error("with other rates a checkpoint is of another model")
	}
	if x.Agreement() == l.Agreement() {
		t.Error("processes with other rates take each other for parts of one run")
	}
	if even, err := l.WithRates(map[string]float32{"body": 1}); err != nil || even.Uneven() || even.Agreement() != l.Agreement() {
		t.Errorf("a rate of 1 is another: %v", err)
	}
	for name, bad := range map[string]map[string]float32{
		"layout: a learning rate is given for tensor heads, and there is none":               {"head": 2, "heads": 2},
		"layout: tensor head has 0 times the learning rate; it must be a positive number":    {"head": 0},
		"layout: tensor head has NaN times the learning rate; it must be a positive number":  {"head": float32(math.NaN())},
		"layout: tensor body has +Inf times the learning rate; it must be a positive number": {"body": float32(math.Inf(1))},
	} {
		if _, err := l.WithRates(bad); err == nil || err.Error() != name {
			t.Errorf("%v: %v, want %s", bad, err, name)
		}
	}
}
