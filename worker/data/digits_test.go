package data

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// The default digits are frozen: accuracies in documents and checkpoints of runs refer to these
// bytes. If they differ on one kind of processor only, a product and a sum were fused somewhere.
func TestDigitsAreFrozen(t *testing.T) {
	s := Digits(DigitsSeed, DigitsTrain, DigitsTest)
	if s.Mean != digitsMean || s.Std != digitsStd {
		t.Errorf("the mean is %v and the deviation %v; digitsMean and digitsStd say %v and %v", s.Mean, s.Std, float32(digitsMean), float32(digitsStd))
	}
	for _, half := range []struct {
		name string
		im   *Images
		n    int
		want string
	}{
		{"training", s.Train, DigitsTrain, "5de1b111fcf353a8a0a8937d64bd364841adc5a700a95c2fba3b745a16ab735f"},
		{"test", s.Test, DigitsTest, "65a553ff0c948cafe62702ec72bdc7a2ea0c2b9259407e83d743997aaae0104e"},
	} {
		if half.im.N != half.n || half.im.Shape() != [3]int{1, 28, 28} || half.im.Classes != 10 {
			t.Errorf("%s half: %d images of shape %v in %d classes", half.name, half.im.N, half.im.Shape(), half.im.Classes)
		}
		h := sha256.New()
		h.Write(half.im.Pixels)
		h.Write(half.im.Labels)
		if got := hex.EncodeToString(h.Sum(nil)); got != half.want {
			t.Errorf("%s half has SHA-256 %s, want %s", half.name, got, half.want)
		}
	}
}

// Neither the number of images nor the number of processors changes an image.
func TestADigitDependsOnSeedAndPlaceAlone(t *testing.T) {
	all := Digits(5, 300, 40)
	before := runtime.GOMAXPROCS(1)
	few := Digits(5, 120, 1)
	runtime.GOMAXPROCS(before)
	if !slices.Equal(few.Train.Pixels, all.Train.Head(120).Pixels) || !slices.Equal(few.Test.Pixels, all.Test.Head(1).Pixels) {
		t.Error("the first images of a longer set are not those of a shorter one")
	}
	if other := Digits(6, 120, 1); slices.Equal(other.Train.Pixels, few.Train.Pixels) {
		t.Error("another seed gave the same images")
	}
	if slices.Equal(all.Train.Head(40).Pixels, all.Test.Pixels) {
		t.Error("the test images are the training images")
	}
}

// Each image shows something visible and complete: the border is dark, and there is neither no ink
// nor only ink.
func TestDigitsAreInThePicture(t *testing.T) {
	race.Skip(t)
	s := Digits(1, 1000, 300)
	for _, im := range []*Images{s.Train, s.Test} {
		for i := range im.N {
			if im.Labels[i] != uint8(i%10) {
				t.Fatalf("image %d has label %d", i, im.Labels[i])
			}
			bright, border := 0, 0
			for j, p := range im.Pixels[i*784 : (i+1)*784] {
				if p > 95 {
					bright++
					if x, y := j%28, j/28; x == 0 || y == 0 || x == 27 || y == 27 {
						border++
					}
				}
			}
			if bright < 8 || bright > 350 || border > 16 {
				t.Errorf("image %d, a %d: %d bright pixels, %d of them at the border", i, i%10, bright, border)
			}
		}
	}
}

// The nearest class mean is a linear classifier without any learning. Its accuracy shows whether
// the digits are legible, and whether they are too easy.
func TestDigitsAreNeitherTrivialNorNoise(t *testing.T) {
	race.Skip(t)
	s := Digits(DigitsSeed, 3000, 1000)
	var means [10][784]float64
	for i, label := range s.Train.Labels {
		for j, p := range s.Train.Pixels[i*784 : (i+1)*784] {
			means[label][j] += float64(p) / 300
		}
	}
	right := 0
	for i, label := range s.Test.Labels {
		best, nearest := 0, 1e300
		for c := range means {
			d := 0.0
			for j, p := range s.Test.Pixels[i*784 : (i+1)*784] {
				d += (float64(p) - means[c][j]) * (float64(p) - means[c][j])
			}
			if d < nearest {
				best, nearest = c, d
			}
		}
		if best == int(label) {
			right++
		}
	}
	if right < 550 || right > 900 {
		t.Errorf("the nearest class mean is right for %d of 1000", right)
	}
}

// Images that are drawn when somebody asks for them are those of a set that is drawn at once,
// whoever asks for how many, how often, and at the same time.
func TestDigitsAreDrawnWhenTheyAreAskedFor(t *testing.T) {
	const n = 300
	drawing := newDrawing(DigitsSeed, 0)
	all := drawing.all(n)
	lazy := newDrawn(drawing, n, digitsMean, digitsStd)
	if lazy.Len() != n || lazy.Values() != all.Values() || lazy.Labels() != 1 {
		t.Fatalf("%d images of %d values and %d labels", lazy.Len(), lazy.Values(), lazy.Labels())
	}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 1))
			for range 20 {
				indices := make([]int, 32)
				for i := range indices {
					indices[i] = rng.IntN(n)
				}
				x, y := make([]float32, 32*784), make([]int32, 32)
				wantX, wantY := make([]float32, 32*784), make([]int32, 32)
				lazy.Fill(x, y, indices)
				all.Fill(wantX, wantY, indices, digitsMean, digitsStd)
				if !slices.Equal(x, wantX) || !slices.Equal(y, wantY) {
					t.Errorf("images %v are others", indices)
				}
			}
		})
	}
	wg.Wait()
}

func TestDrawingAllocatesNothing(t *testing.T) {
	race.Skip(t)
	s := openDigits()
	x, y, next := make([]float32, 784), make([]int32, 1), []int{0}
	fill := func() {
		s.Train.Fill(x, y, next)
		next[0]++
	}
	for range 1000 {
		fill() // every digit of every font
	}
	if n := testing.AllocsPerRun(1000, fill); n > 0 {
		t.Errorf("%v allocations for an image", n)
	}
}

func BenchmarkOpenDigits(b *testing.B) {
	sampler := Sampler{N: DigitsTrain, Batch: 64, Slots: 4, Seed: 1}
	x, y := make([]float32, 64*784), make([]int32, 64)
	for b.Loop() {
		s := openDigits()
		s.Train.Fill(x, y, sampler.Indices(nil, 0, 1, 0))
	}
}

func BenchmarkDigits(b *testing.B) {
	for b.Loop() {
		Digits(DigitsSeed, DigitsTrain, DigitsTest)
	}
}
