package data

import (
	"crypto/sha256"
	"encoding/hex"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"runtime"
	"slices"
	"testing"
)

// The default digits are frozen: accuracies in documents and checkpoints of runs refer to these
// bytes. If they differ on one kind of processor only, a product and a sum were fused somewhere.
func TestDigitsAreFrozen(t *testing.T) {
	race.Skip(t)
	s, err := openImages("digits", "")
	if err != nil {
		t.Fatal(err)
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

// The distance to an outline is negative inside it.
func TestDistanceFieldsAreSigned(t *testing.T) {
	square := centre([][]point{{{0, 0}, {2, 0}, {2, 2}, {0, 2}, {0, 0}}})
	for _, c := range []struct {
		p    point
		want float64
	}{
		{point{0, 0}, -0.5}, {point{0.25, 0}, -0.25}, {point{0, -0.625}, 0.125}, {point{0.75, 0.5}, 0.25}, {point{-0.5, 0}, 0},
	} {
		if got := distance(square, c.p); got != c.want {
			t.Errorf("distance of %v to the unit square is %v, want %v", c.p, got, c.want)
		}
	}
}

func BenchmarkDigits(b *testing.B) {
	for b.Loop() {
		Digits(DigitsSeed, DigitsTrain, DigitsTest)
	}
}
