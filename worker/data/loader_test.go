package data

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// TestABatchDoesNotDependOnWhatWasDrawnAhead: a batch is the same, whatever is asked for in
// whatever order.
func TestABatchDoesNotDependOnWhatWasDrawnAhead(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	im := randomImages(rng, 50, 1, 5, 7, 10)
	s := Sampler{N: 50, Batch: 6, Slots: 3, Seed: 9}
	l := NewLoader(s, normalised{im, 0.2, 0.5})
	defer l.Close()
	x, y := make([]float32, 6*35), make([]int32, 6)
	slot, version, sequence := kintsugi.Slot(1), kintsugi.Step(0), uint32(0)
	for trial := range 2000 {
		gotX, gotY := l.Batch(slot, version, sequence)
		im.Fill(x, y, s.Indices(nil, slot, version, sequence), 0.2, 0.5)
		if !slices.Equal(gotX, x) || !slices.Equal(gotY, y) {
			t.Fatalf("batch %d: slot %d, version %d, sequence %d is another one than the sampler's", trial, slot, version, sequence)
		}
		switch kind := rng.IntN(10); {
		case kind < 6:
			version, sequence = version+1, 0
		case kind == 6: // the same batch again
		case kind == 7:
			sequence++
		case kind == 8:
			version += kintsugi.Step(rng.IntN(4))
		default:
			slot, version = kintsugi.Slot(rng.IntN(3)), version/2
		}
	}
}

// TestALoaderThatIsSkippedStopsGuessing: a loader whose guesses are wrong stops, and guesses again
// when versions follow one another.
func TestALoaderThatIsSkippedStopsGuessing(t *testing.T) {
	im := randomImages(rand.New(rand.NewPCG(23, 24)), 50, 1, 5, 7, 10)
	l := NewLoader(Sampler{N: 50, Batch: 6, Slots: 3, Seed: 9}, normalised{im, 0.2, 0.5})
	defer l.Close()
	for _, step := range []struct {
		version kintsugi.Step
		guesses bool
	}{{0, true}, {1, true}, {2, true}, {5, false}, {8, false}, {9, true}, {10, true}, {10, true}, {12, false}} {
		l.Batch(1, step.version, 0)
		if l.guessed != step.guesses {
			t.Errorf("version %d: guessed %v, want %v", step.version, l.guessed, step.guesses)
		}
	}
}

// TestWhatIsDrawnAheadIsWhatIsReturned: a batch that is announced as drawn ahead is returned later
// in the same memory, so it may be copied from there at once.
func TestWhatIsDrawnAheadIsWhatIsReturned(t *testing.T) {
	im := randomImages(rand.New(rand.NewPCG(27, 28)), 50, 1, 5, 7, 10)
	l := NewLoader(Sampler{N: 50, Batch: 6, Slots: 3, Seed: 9}, normalised{im, 0.2, 0.5})
	defer l.Close()
	type batch struct {
		at      *float32
		version kintsugi.Step
		x       []float32
	}
	ahead := make(chan batch, 1)
	l.Ahead = func(_ kintsugi.Slot, version kintsugi.Step, x []float32, _ []int32) {
		ahead <- batch{&x[0], version, slices.Clone(x)}
	}
	var told batch
	for _, step := range []struct {
		version kintsugi.Step
		told    bool
	}{{3, false}, {4, true}, {5, true}, {7, false}, {8, false}, {9, true}, {10, true}} {
		x, _ := l.Batch(1, step.version, 0)
		if was := told.at == &x[0] && told.version == step.version && slices.Equal(told.x, x); was != step.told {
			t.Errorf("version %d: told of it ahead of time: %v, want %v", step.version, was, step.told)
		}
		if l.guessed {
			told = <-ahead
		}
	}
}

// BenchmarkLoader measures how long a worker waits for a batch of 28×28 images, drawn on demand and
// ahead. Before each batch the worker does nothing for the time of a fast step, as if it waited for
// the network or for another core.
func BenchmarkLoader(b *testing.B) {
	im := randomImages(rand.New(rand.NewPCG(25, 26)), 60000, 1, 28, 28, 10)
	for _, size := range []struct {
		name  string
		batch int
	}{{"32", 32}, {"64", 64}} {
		s := Sampler{N: im.N, Batch: size.batch, Slots: 4, Seed: 9}
		b.Run("drawn/"+size.name, func(b *testing.B) {
			x, y, indices := make([]float32, s.Batch*784), make([]int32, s.Batch), []int(nil)
			for i := 0; b.Loop(); i++ {
				indices = s.Indices(indices, 0, kintsugi.Step(i), 0)
				im.Fill(x, y, indices, 0.13, 0.31)
			}
		})
		b.Run("ahead/"+size.name, func(b *testing.B) {
			l := NewLoader(s, normalised{im, 0.13, 0.31})
			defer l.Close()
			for i := 0; b.Loop(); i++ {
				l.Batch(0, kintsugi.Step(i), 0)
				for end := time.Now().Add(time.Millisecond); time.Now().Before(end); {
				}
			}
			b.ReportMetric(float64(l.Waited().Nanoseconds())/float64(b.N), "wait-ns/op")
		})
	}
}
