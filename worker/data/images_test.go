package data

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomImages returns n images of random pixels, and labels i mod classes.
func randomImages(rng *rand.Rand, n, channels, height, width, classes int) *Images {
	im := &Images{N: n, Channels: channels, Height: height, Width: width, Classes: classes}
	for i := range n {
		im.Labels = append(im.Labels, uint8(i%classes))
		for range im.Values() {
			im.Pixels = append(im.Pixels, byte(rng.Uint32()))
		}
	}
	return im
}

func TestFillIsTheFormulaToTheBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	im := randomImages(rng, 20, 3, 5, 7, 4)
	indices := []int{19, 0, 7, 7, 3}
	const mean, std = 0.13, 0.31
	x, y := make([]float32, 5*105+1), make([]int32, 6)
	x[5*105], y[5] = 42, 42
	im.Fill(x, y, indices, mean, std)
	for i, k := range indices {
		for j := range 105 {
			want := (float32(im.Pixels[k*105+j])/255 - mean) / std
			if got := x[i*105+j]; math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("value %d of image %d is %v, want %v", j, k, got, want)
			}
		}
		if y[i] != int32(im.Labels[k]) {
			t.Errorf("label of image %d is %d, want %d", k, y[i], im.Labels[k])
		}
	}
	if x[5*105] != 42 || y[5] != 42 {
		t.Error("values after the batch were written to")
	}
	if n := testing.AllocsPerRun(10, func() { im.Fill(x, y, indices, mean, std) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Normalised with the moments of a set, its training half has mean 0 and variance 1.
func TestMomentsNormaliseTheTrainingHalf(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := newImageSet("random", randomImages(rng, 50, 2, 9, 8, 3), randomImages(rng, 5, 2, 9, 8, 5))
	if s.Train.Classes != 5 || s.Test.Classes != 5 {
		t.Errorf("classes %d and %d, want 5 in both halves", s.Train.Classes, s.Test.Classes)
	}
	x, y := make([]float32, len(s.Train.Pixels)), make([]int32, s.Train.N)
	indices := make([]int, s.Train.N)
	for i := range indices {
		indices[i] = i
	}
	s.Train.Fill(x, y, indices, s.Mean, s.Std)
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(x))
	if mean, variance := sum/n, squares/n; math.Abs(mean) > 1e-5 || math.Abs(variance-1) > 1e-5 {
		t.Errorf("mean %v and variance %v after normalising, want 0 and 1", mean, variance)
	}
}

func TestImagesOfOneColourDoNotDivideByZero(t *testing.T) {
	im := &Images{N: 2, Channels: 1, Height: 2, Width: 2, Classes: 1, Pixels: slices.Repeat([]byte{51}, 8), Labels: []uint8{0, 0}}
	s := newImageSet("grey", im, im)
	if s.Mean != 0.2 || s.Std != 1 {
		t.Errorf("mean %v and deviation %v, want 0.2 and 1", s.Mean, s.Std)
	}
	x, y := make([]float32, 8), make([]int32, 2)
	im.Fill(x, y, []int{0, 1}, s.Mean, s.Std)
	if want := make([]float32, 8); !slices.Equal(x, want) {
		t.Errorf("normalised to %v, want zeros", x)
	}
}

func TestHeadIsAPrefix(t *testing.T) {
	im := randomImages(rand.New(rand.NewPCG(5, 6)), 4, 1, 2, 3, 2)
	for n, want := range map[int]int{-1: 0, 0: 0, 3: 3, 4: 4, 9: 4} {
		h := im.Head(n)
		if h.N != want || len(h.Labels) != want || !slices.Equal(h.Pixels, im.Pixels[:6*want]) {
			t.Errorf("head of %d has %d images, %d labels, %d pixels", n, h.N, len(h.Labels), len(h.Pixels))
		}
	}
}

func BenchmarkFill(b *testing.B) {
	im := randomImages(rand.New(rand.NewPCG(7, 8)), 256, 1, 28, 28, 10)
	x, y, indices := make([]float32, 32*784), make([]int32, 32), make([]int, 32)
	for i := range indices {
		indices[i] = i * 7
	}
	b.SetBytes(32 * 784)
	for b.Loop() {
		im.Fill(x, y, indices, 0.13, 0.31)
	}
}
