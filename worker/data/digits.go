package data

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/gomediumitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/gomonobolditalic"
	"golang.org/x/image/font/gofont/gomonoitalic"
	"golang.org/x/image/font/gofont/goregular"
)

// Parameters of the generated set that [Open] returns as "digits".
const (
	DigitsSeed  = 20260101
	DigitsTrain = 12000
	DigitsTest  = 2000
)

// side is the side of a generated image, in pixels, as in MNIST.
const side = 28

// Digits returns a set of generated images of digits: 28x28 pixels, one channel, 10 classes of
// equal size (image i shows the digit i mod 10). The images are drawn with the Go fonts, then
// rotated, sheared, scaled, shifted, bent, made thinner or bolder, paler, and noisy, all at random.
// The test images use fonts that no training image uses, so that the test accuracy measures the
// recognition of shapes and not of a few outlines.
//
// The images are a function of the seed alone, on every machine and in all future versions: image i
// is the same however many there are. Digits panics if a number is below 1.
func Digits(seed uint64, train, test int) *ImageSet {
	if train < 1 || test < 1 {
		panic(fmt.Sprintf("data: %d training and %d test digits", train, test))
	}
	seen := mustFonts(goregular.TTF, goitalic.TTF, gobold.TTF, gobolditalic.TTF,
		gomono.TTF, gomonobold.TTF, gomonobolditalic.TTF)
	unseen := mustFonts(gomedium.TTF, gomediumitalic.TTF, gomonoitalic.TTF)
	return newImageSet("digits",
		drawAll(seen, train, hash(forDigits, seed, 0)),
		drawAll(unseen, test, hash(forDigits, seed, 1)))
}

// mustFonts returns the fields of fonts that are compiled in. It panics on an error: no user input
// can cause one, and a test draws every font.
func mustFonts(ttf ...[]byte) [][10]*field {
	fonts := make([][10]*field, len(ttf))
	each(len(ttf), func(i int) {
		f, err := newFields(ttf[i])
		if err != nil {
			panic(fmt.Sprintf("data: font %d: %v", i, err))
		}
		fonts[i] = f
	})
	return fonts
}

// each calls do(i) for all i in [0, n), on all processors. It returns when all calls have returned.
func each(n int, do func(i int)) {
	var wg sync.WaitGroup
	loops := min(n, runtime.GOMAXPROCS(0))
	for k := range loops {
		wg.Go(func() {
			for i := k; i < n; i += loops {
				do(i)
			}
		})
	}
	wg.Wait()
}

func drawAll(fonts [][10]*field, n int, seed uint64) *Images {
	im := &Images{
		N: n, Channels: 1, Height: side, Width: side, Classes: 10,
		Pixels: make([]byte, n*side*side),
		Labels: make([]uint8, n),
	}
	// Each image has its own stream, so that the result does not depend on which goroutine draws
	// it.
	each(n, func(i int) {
		s := stream{hash(seed, uint64(i))}
		digit := i % 10
		font := fonts[s.next()%uint64(len(fonts))]
		im.Labels[i] = uint8(digit)
		draw((*[side * side]byte)(im.Pixels[i*side*side:]), font[digit], &s)
	})
	return im
}

// look is how one image distorts its digit. Lengths are in pixels of the image.
type look struct {
	// The image shows, at (x, y), the field at (a*x + b*y, c*x + d*y), both relative to the middle.
	a, b, c, d float64
	shiftX     float64
	shiftY     float64
	height     float64 // of the digit
	bend       bend
	stroke     float64 // added on both sides of the line
	soft       float64 // width of the fading edge
	ink        float64 // brightness of the line, in [0, 1]
	noise      float64 // standard deviation of the noise, in [0, 1]
}

// The strengths below were tuned by training on the set with batches of 128 and momentum 0.9 and
// testing on the unseen fonts. The set should be hard enough that a linear model stays well behind,
// and easy enough that a convolutional model is nearly perfect within the minute of a
// demonstration. Softmax regression reaches 0.906 after 1,500 steps (rate 0.01), LeNet 0.988 after
// 750 and 0.9955 after 1,500 (rate 0.05).
func newLook(s *stream) look {
	l := look{
		shiftX: s.uniform(-1.25, 1.25),
		shiftY: s.uniform(-1.25, 1.25),
		height: s.uniform(16, 21),
		stroke: s.uniform(-0.3, 0.6),
		soft:   s.uniform(1, 1.8),
		ink:    s.uniform(0.45, 1),
		noise:  s.uniform(0.02, 0.2),
	}
	// A rotation by the angle whose half has the tangent t, computed without a sine: the last bit
	// of a sine differs between machines. t in [-0.14, 0.14] is up to 16 degrees.
	t := s.uniform(-0.14, 0.14)
	cos := (1 - float64(t*t)) / (1 + float64(t*t))
	sin := 2 * t / (1 + float64(t*t))
	shear := s.uniform(-0.25, 0.25)
	wide := s.uniform(0.8, 1.25)
	l.a, l.b = cos/wide, (sin+shear)/wide
	l.c, l.d = -sin, cos
	l.bend.fill(s, 1.9)
	return l
}

// draw paints one digit. All of its randomness comes from s.
func draw(dst *[side * side]byte, digit *field, s *stream) {
	l := newLook(s)
	var dx, dy [side * side]float64
	l.bend.spread(&dx, &dy)
	const middle = float64(side-1) / 2
	// From pixels of the image to entries of the field.
	zoom := fieldScale / l.height
	a, b, c, d := float64(l.a*zoom), float64(l.b*zoom), float64(l.c*zoom), float64(l.d*zoom)
	edge, bright, grain := 1/l.soft, 255*l.ink, 255*l.noise
	for i := range dst {
		x := float64(i%side) - middle - l.shiftX + dx[i]
		y := float64(i/side) - middle - l.shiftY + dy[i]
		distance := digit.at(float64(a*x)+float64(b*y)+fieldMiddle, float64(c*x)+float64(d*y)+fieldMiddle)
		outside := float64(distance*l.height) - l.stroke
		ink := clamp(0.5-float64(outside*edge), 1)
		value := float64(bright*ink) + float64(grain*s.bell())
		dst[i] = byte(clamp(value+0.5, 255))
	}
}
