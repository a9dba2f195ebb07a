package data

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

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

	// The mean and the standard deviation of the training pixels / 255, as float32. They are written
	// down so that a process need not draw all images to know them.
	digitsMean = 0.14100039
	digitsStd  = 0.23336403
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
	return newImageSet("digits", newDrawing(seed, 0).all(train), newDrawing(seed, 1).all(test))
}

// openDigits returns the set of the parameters above. Its images are drawn when they are asked for.
func openDigits() *Set {
	return &Set{
		Name: "digits", Shape: [3]int{1, side, side}, Classes: 10,
		Train: newDrawn(newDrawing(DigitsSeed, 0), DigitsTrain, digitsMean, digitsStd),
		Test:  newDrawn(newDrawing(DigitsSeed, 1), DigitsTest, digitsMean, digitsStd),
	}
}

// The fonts of the training images, and those of the test images.
func seenFonts() [][]byte {
	return [][]byte{goregular.TTF, goitalic.TTF, gobold.TTF, gobolditalic.TTF, gomono.TTF, gomonobold.TTF, gomonobolditalic.TTF}
}
func unseenFonts() [][]byte { return [][]byte{gomedium.TTF, gomediumitalic.TTF, gomonoitalic.TTF} }

// drawing draws the images of one half of a set.
type drawing struct {
	fonts []*font
	seed  uint64
}

// newDrawing returns the drawing of the training half (0) or of the test half (1) for a seed.
func newDrawing(seed, half uint64) *drawing {
	d := &drawing{seed: hash(forDigits, seed, half)}
	for _, ttf := range [][][]byte{seenFonts(), unseenFonts()}[half] {
		d.fonts = append(d.fonts, newFont(ttf))
	}
	return d
}

// digitOf returns the digit that image i shows.
func digitOf(i int) int { return i % 10 }

// draw paints image i. Each image has its own stream, so that it does not depend on who draws it.
func (d *drawing) draw(dst *[side * side]byte, i int) {
	s := stream{hash(d.seed, uint64(i))}
	f := d.fonts[s.next()%uint64(len(d.fonts))]
	draw(dst, f[digitOf(i)](), &s)
}

// all draws the first n images.
func (d *drawing) all(n int) *Images {
	im := &Images{
		N: n, Channels: 1, Height: side, Width: side, Classes: 10,
		Pixels: make([]byte, n*side*side),
		Labels: make([]uint8, n),
	}
	each(n, func(i int) {
		im.Labels[i] = uint8(digitOf(i))
		d.draw((*[side * side]byte)(im.Pixels[i*side*side:]), i)
	})
	return im
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

// drawn implements Examples for images that are drawn when they are asked for, and the others
// meanwhile. So a process of a run begins at once. Fill allocates only when it is called first, and
// for the first image of a digit in a font.
type drawn struct {
	drawing *drawing
	table   table
	pixels  []byte          // [n, side, side]; of the images that are kept
	state   []atomic.Uint32 // by image
	begun   sync.Once
}

// The states of an image.
const (
	unseen  = iota // nobody has asked for it
	keeping        // somebody has drawn it, and is keeping it in pixels
	kept           // it is in pixels
)

func newDrawn(d *drawing, n int, mean, std float32) *drawn {
	return &drawn{drawing: d, table: newTable(mean, std), pixels: make([]byte, n*side*side), state: make([]atomic.Uint32, n)}
}

func (d *drawn) Len() int    { return len(d.state) }
func (d *drawn) Values() int { return side * side }
func (d *drawn) Labels() int { return 1 }

func (d *drawn) Fill(x []float32, y []int32, indices []int) {
	checkFill(x, y, indices, d.Values(), d.Len())
	d.begun.Do(func() { go d.others() })
	var fresh [side * side]byte
	for i, k := range indices {
		d.table.expand(x[i*side*side:(i+1)*side*side], d.image(k, &fresh)[:])
		y[i] = int32(digitOf(k))
	}
}

// image returns image k. If it is not kept yet, it is drawn to fresh, and then kept.
func (d *drawn) image(k int, fresh *[side * side]byte) *[side * side]byte {
	at := (*[side * side]byte)(d.pixels[k*side*side:])
	if d.state[k].Load() == kept {
		return at
	}
	d.drawing.draw(fresh, k)
	if d.state[k].CompareAndSwap(unseen, keeping) {
		*at = *fresh
		d.state[k].Store(kept)
	}
	return fresh
}

// others draws what nobody has asked for yet, while whoever asked first computes. Nobody waits for
// it: it ends when all are drawn, and writes to nothing but d.
func (d *drawn) others() {
	var fresh [side * side]byte
	for k := range d.state {
		d.image(k, &fresh)
	}
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
