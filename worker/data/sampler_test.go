package data

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestPermutationIsABijection(t *testing.T) {
	sizes := []uint64{1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4095, 4096, 4097, 60000}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		sizes = append(sizes, 1+rng.Uint64N(3000))
	}
	for _, n := range sizes {
		for range 3 {
			key := rng.Uint64()
			p := newPermutation(n, key)
			seen := make([]bool, n)
			for x := range n {
				y := p.at(x)
				if y >= n || seen[y] {
					t.Fatalf("n %d, key %#x: %d goes to %d, which is outside or taken", n, key, x, y)
				}
				seen[y] = true
			}
		}
	}
}

// All orders of a small set occur, about equally often: within 6 standard deviations of the mean.
func TestPermutationsOfASmallSetAreEquallyLikely(t *testing.T) {
	const keys, orders = 24000, 24
	count := map[[4]uint64]int{}
	for key := range uint64(keys) {
		p := newPermutation(4, hash(key))
		count[[4]uint64{p.at(0), p.at(1), p.at(2), p.at(3)}]++
	}
	for order, c := range count {
		if c < 1000-190 || c > 1000+190 {
			t.Errorf("order %v came %d times in %d, expected about %d", order, c, keys, keys/orders)
		}
	}
	if len(count) != orders {
		t.Errorf("%d of %d orders came up", len(count), orders)
	}
}

// In a synchronous run, all workers together use each example once in each epoch.
func TestAnEpochUsesEachExampleOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		s := Sampler{N: 1 + rng.IntN(200), Batch: 1 + rng.IntN(40), Slots: 1 + rng.IntN(8), Seed: rng.Uint64()}
		var line []int
		for version := kintsugi.Step(0); len(line) < 4*s.N; version++ {
			if got, want := s.Epochs(version), uint64(len(line)/s.N); got != want {
				t.Fatalf("%+v: %d epochs before version %d, want %d", s, got, version, want)
			}
			for slot := range s.Slots {
				line = append(line, s.Indices(nil, kintsugi.Slot(slot), version, 0)...)
			}
		}
		for epoch := range len(line) / s.N {
			seen := slices.Sorted(slices.Values(line[epoch*s.N : (epoch+1)*s.N]))
			for i, k := range seen {
				if i != k {
					t.Fatalf("%+v: epoch %d uses %v", s, epoch, seen)
				}
			}
		}
	}
}

// A batch depends only on its own arguments: neither on earlier calls nor on the slice.
func TestIndicesHaveNoMemory(t *testing.T) {
	s := Sampler{N: 1000, Batch: 32, Slots: 4, Seed: 9}
	want := s.Indices(nil, 2, 77, 1)
	dst := make([]int, 5, 64)
	for v := range kintsugi.Step(10) {
		dst = s.Indices(dst, 1, 1000-v, 0)
	}
	got := s.Indices(dst, 2, 77, 1)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if &got[0] != &dst[0] {
		t.Error("a slice with enough capacity was not used again")
	}
	if n := testing.AllocsPerRun(10, func() { s.Indices(dst, 3, 5, 0) }); n != 0 {
		t.Errorf("%v allocations for a batch, want 0", n)
	}
}

func TestEpochsSeedsAndSequencesAreShuffledApart(t *testing.T) {
	whole := Sampler{N: 500, Batch: 500, Slots: 1, Seed: 1}
	other := whole
	other.Seed = 2
	orders := map[string][]int{
		"epoch 0":             whole.Indices(nil, 0, 0, 0),
		"epoch 1":             whole.Indices(nil, 0, 1, 0),
		"sequence 1":          whole.Indices(nil, 0, 0, 1),
		"sequence 1, epoch 1": whole.Indices(nil, 0, 1, 1),
		"seed 2":              other.Indices(nil, 0, 0, 0),
		"no shuffle":          slices.Sorted(slices.Values(whole.Indices(nil, 0, 0, 0))),
	}
	for a, x := range orders {
		for b, y := range orders {
			same := 0
			for i := range x {
				if x[i] == y[i] {
					same++
				}
			}
			// Two random orders agree in one place on average.
			if a != b && same > 10 {
				t.Errorf("%s and %s agree in %d of %d places", a, b, same, len(x))
			}
		}
	}
}

// Pinned: a checkpoint that one version of the program made is continued by another.
func TestBatchesAreFrozen(t *testing.T) {
	s := Sampler{N: 60000, Batch: 4, Slots: 4, Seed: 1}
	got := fmt.Sprint(s.Indices(nil, 0, 0, 0), s.Indices(nil, 3, 12345, 0), s.Indices(nil, 1, 7, 2), s.Seed64(1, 7, 2))
	const want = "[4550 28789 47166 41148] [2690 19504 6445 11718] [53623 21852 36758 23] 11960301382554711829"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSeedsOfGradientsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for seed := range uint64(3) {
		s := Sampler{N: 1, Batch: 1, Slots: 1, Seed: seed}
		for slot := range kintsugi.Slot(8) {
			for version := range kintsugi.Step(50) {
				for sequence := range uint32(3) {
					id := fmt.Sprint(seed, slot, version, sequence)
					x := s.Seed64(slot, version, sequence)
					if first, ok := seen[x]; ok {
						t.Fatalf("(seed, slot, version, sequence) (%s) and (%s) share the seed %#x", first, id, x)
					}
					seen[x] = id
				}
			}
		}
	}
}

func TestSamplerRefusesWhatItCannotMean(t *testing.T) {
	for _, s := range []Sampler{{0, 1, 1, 0}, {1, 0, 1, 0}, {1, 1, 0, 0}, {10, 2, 3, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v gave a batch for slot 3", s)
				}
			}()
			s.Indices(nil, 3, 0, 0)
		}()
	}
}

func BenchmarkIndices(b *testing.B) {
	s := Sampler{N: 60000, Batch: 32, Slots: 4, Seed: 1}
	dst := make([]int, s.Batch)
	for v := kintsugi.Step(0); b.Loop(); v++ {
		dst = s.Indices(dst, 1, v, 0)
	}
}

func ExampleSampler() {
	// Two workers, five examples, batches of two: version 2 begins with the last two places of epoch 1.
	s := Sampler{N: 5, Batch: 2, Slots: 2, Seed: 7}
	for version := range kintsugi.Step(3) {
		fmt.Println(version, s.Indices(nil, 0, version, 0), s.Indices(nil, 1, version, 0))
	}
	// Output:
	// 0 [4 2] [0 1]
	// 1 [3 1] [3 4]
	// 2 [0 2] [2 0]
}
