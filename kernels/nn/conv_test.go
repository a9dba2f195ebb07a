package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/nn"
)

// blocked, in place of a place in the window, says that no gradient passes: see ConvForward.At.
const blocked = 255

// guarded returns n values inside a larger array of NaN, at an address that is not a multiple of a
// vector, and a function that reports whether the values around are still NaN.
func guarded(rng *rand.Rand, n int) (s []float32, untouched func() bool) {
	const around = 64
	all := make([]float32, n+2*around)
	for i := range all {
		all[i] = float32(math.NaN())
	}
	lo := around - rng.IntN(16)
	return all[lo : lo+n : lo+n], func() bool {
		for i, v := range all {
			if (i < lo || i >= lo+n) && v == v {
				return false
			}
		}
		return true
	}
}

func guardedBytes(rng *rand.Rand, n int) (s []uint8, untouched func() bool) {
	const around, guard = 64, 77
	all := make([]uint8, n+2*around)
	for i := range all {
		all[i] = guard
	}
	lo := around - rng.IntN(16)
	return all[lo : lo+n : lo+n], func() bool {
		for i, v := range all {
			if (i < lo || i >= lo+n) && v != guard {
				return false
			}
		}
		return true
	}
}

func fill(rng *rand.Rand, s []float32) []float32 {
	for i := range s {
		s[i] = rng.Float32()*2 - 1
	}
	return s
}

// sum is a sum of products in float64, with a bound on the error of the same sum in float32.
type sum struct {
	value, absolute float64
	terms           int
}

func (s *sum) add(a, b float32) {
	p := float64(a) * float64(b)
	s.value += p
	s.absolute += math.Abs(p)
	s.terms++
}

// far reports whether v is further from the sum than the package comment allows.
func (s *sum) far(v float32) bool {
	return !(math.Abs(float64(v)-s.value) <= float64(s.terms+1)*0x1p-24*s.absolute)
}

// plain returns the result of filter f at row r and column q of the convolution of an image,
// without bias.
func plain(c *nn.Conv, x, w []float32, f, r, q int) (s sum) {
	for ch := range c.Channels {
		for ky := range c.Kernel {
			for kx := range c.Kernel {
				iy, ix := r+ky-c.Pad, q+kx-c.Pad
				if iy >= 0 && iy < c.Height && ix >= 0 && ix < c.Width {
					s.add(x[(ch*c.Height+iy)*c.Width+ix], w[((f*c.Channels+ch)*c.Kernel+ky)*c.Kernel+kx])
				}
			}
		}
	}
	return s
}

// geometries are the convolutions of the tests: small versions of those of the models, and drawn
// ones.
func geometries(rng *rand.Rand) []*nn.Conv {
	all := []*nn.Conv{
		nn.NewConv(1, 28, 28, 6, 5, 2, 2, true), nn.NewConv(6, 14, 14, 16, 5, 0, 2, true), nn.NewConv(3, 14, 14, 9, 3, 1, 2, true),
		nn.NewConv(2, 3, 40, 7, 3, 1, 1, true), nn.NewConv(1, 4, 4, 1, 1, 0, 1, false), nn.NewConv(2, 3, 3, 2, 2, 4, 3, false),
		nn.NewConv(1, 70, 70, 2, 3, 1, 2, true), nn.NewConv(1, 6, 6, 33, 1, 0, 2, true),
	}
	drawn := 60
	if testing.Short() {
		drawn = 20
	}
	for len(all) < drawn {
		k, pad := 1+rng.IntN(5), rng.IntN(5)
		h, w := 1+rng.IntN(20), 1+rng.IntN(40)
		pool := 1 + rng.IntN(4)
		if h+2*pad-k+1 < pool || w+2*pad-k+1 < pool {
			continue
		}
		all = append(all, nn.NewConv(1+rng.IntN(4), h, w, 1+rng.IntN(20), k, pad, pool, rng.IntN(2) == 0))
	}
	return all
}

// convRun runs a convolution forward and backward on guarded arrays.
type convRun struct {
	*nn.Conv
	n          int
	x, w, bias []float32
	forward    nn.ConvForward
	backward   nn.ConvBackward
	guards     []func() bool
}

func newConvRun(rng *rand.Rand, c *nn.Conv, n int, dx bool) *convRun {
	r := &convRun{Conv: c, n: n}
	array := func(n int) []float32 {
		s, ok := guarded(rng, n)
		r.guards = append(r.guards, ok)
		return s
	}
	at, ok := guardedBytes(rng, n*c.Outputs())
	r.guards = append(r.guards, ok)
	r.x, r.w, r.bias = fill(rng, array(n*c.Inputs())), fill(rng, array(c.Weights())), fill(rng, array(c.Filters))
	forwardW, backwardW := array(c.Weights()), array(c.Weights())
	c.Arrange(forwardW, backwardW, r.w)
	frames, scratch := array(n*c.FrameValues()), array(c.BackwardScratch(n))
	clear(frames)
	clear(scratch)
	r.forward = nn.ConvForward{N: n, X: r.x, Y: array(n * c.Outputs()), At: at, Frames: frames, Weights: forwardW, Bias: r.bias, Scratch: array(c.ForwardScratch())}
	r.backward = nn.ConvBackward{N: n, DY: fill(rng, array(n*c.Outputs())), At: at, Frames: frames, Weights: backwardW,
		DW: array(c.Weights()), DB: array(c.Filters), Scratch: scratch}
	if dx {
		r.backward.DX = array(n * c.Inputs())
	}
	return r
}

// TestConvolutionsAreTheirDefinition compares each result and each gradient with a sum in float64.
func TestConvolutionsAreTheirDefinition(t *testing.T) {
	for _, dev := range nn.Devices() {
		t.Run(dev.Name(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for i, c := range geometries(rng) {
				r := newConvRun(rng, c, 1+rng.IntN(3), i%3 != 0)
				for range 2 { // the second time on what the first left behind
					dev.ConvForward(c, &r.forward)
					dev.ConvBackward(c, &r.backward)
				}
				if err := r.check(); err != nil {
					t.Fatalf("%d images, %+v: %v", r.n, *c, err)
				}
			}
		})
	}
}

func (r *convRun) check() error {
	for _, ok := range r.guards {
		if !ok() {
			return fmt.Errorf("a value outside an array was written")
		}
	}
	if err := r.checkForward(); err != nil {
		return err
	}
	return r.checkBackward()
}

func (r *convRun) checkForward() error {
	for i := range r.n * r.Outputs() {
		image, f, row, col := r.place(i)
		x := r.x[image*r.Inputs():][:r.Inputs()]
		place, y := int(r.forward.At[i]), r.forward.Y[i]
		best, bound := math.Inf(-1), 0.0
		for q := range r.Pool * r.Pool {
			s := plain(r.Conv, x, r.w, f, row*r.Pool+q/r.Pool, col*r.Pool+q%r.Pool)
			s.add(1, r.bias[f])
			best, bound = max(best, s.value), max(bound, float64(s.terms+1)*0x1p-24*s.absolute)
			if q == place && s.far(y) {
				return fmt.Errorf("forward: result %d comes from place %d and is %g, which gives %g", i, place, y, s.value)
			}
		}
		switch {
		case place == blocked:
			if !r.ReLU || y != 0 || best > bound {
				return fmt.Errorf("forward: result %d is %g and passes no gradient; its window's largest is %g", i, y, best)
			}
		case place >= r.Pool*r.Pool || math.Abs(float64(y)-best) > bound || r.ReLU && y <= 0:
			return fmt.Errorf("forward: result %d is %g, from place %d; its window's largest is %g", i, y, place, best)
		}
	}
	return nil
}

// place returns where result i belongs.
func (r *convRun) place(i int) (image, f, row, col int) {
	area, cols := r.Outputs()/r.Filters, (r.Width+2*r.Pad-r.Kernel+1)/r.Pool
	return i / r.Outputs(), i % r.Outputs() / area, i % area / cols, i % cols
}

func (r *convRun) checkBackward() error {
	dw, db, dx := make([]sum, r.Weights()), make([]sum, r.Filters), make([]sum, r.n*r.Inputs())
	for i, d := range r.backward.DY {
		image, f, row, col := r.place(i)
		place := int(r.forward.At[i])
		if place == blocked {
			continue
		}
		db[f].add(d, 1)
		row, col = row*r.Pool+place/r.Pool, col*r.Pool+place%r.Pool
		for ch := range r.Channels {
			for k := range r.Kernel * r.Kernel {
				iy, ix := row+k/r.Kernel-r.Pad, col+k%r.Kernel-r.Pad
				if iy < 0 || iy >= r.Height || ix < 0 || ix >= r.Width {
					continue
				}
				at, weight := (image*r.Channels+ch)*r.Height*r.Width+iy*r.Width+ix, (f*r.Channels+ch)*r.Kernel*r.Kernel+k
				dw[weight].add(d, r.x[at])
				dx[at].add(d, r.w[weight])
			}
		}
	}
	for _, c := range []struct {
		name string
		got  []float32
		want []sum
	}{{"weight", r.backward.DW, dw}, {"bias", r.backward.DB, db}, {"image", r.backward.DX, dx}} {
		if c.got == nil {
			continue
		}
		for i := range c.want {
			if s := &c.want[i]; s.far(c.got[i]) {
				return fmt.Errorf("the gradient for %s %d is %g; want %g", c.name, i, c.got[i], s.value)
			}
		}
	}
	return nil
}

// TestConvolutionsDoNotDependOnAddresses runs the same convolution on arrays at other addresses.
func TestConvolutionsDoNotDependOnAddresses(t *testing.T) {
	for _, dev := range nn.Devices() {
		c := nn.NewConv(3, 14, 15, 9, 3, 1, 2, true)
		var want *convRun
		for shift := range uint64(4) {
			r := newConvRun(rand.New(rand.NewPCG(5, 5)), c, 3, true)
			if want != nil { // the same values, at other addresses
				r = newConvRun(rand.New(rand.NewPCG(5, 6+shift)), c, 3, true)
				copy(r.x, want.x)
				copy(r.w, want.w)
				copy(r.bias, want.bias)
				copy(r.backward.DY, want.backward.DY)
				c.Arrange(r.forward.Weights, r.backward.Weights, r.w)
			}
			dev.ConvForward(c, &r.forward)
			dev.ConvBackward(c, &r.backward)
			if want == nil {
				want = r
				continue
			}
			for name, pair := range map[string][2][]float32{
				"y": {r.forward.Y, want.forward.Y}, "dw": {r.backward.DW, want.backward.DW},
				"db": {r.backward.DB, want.backward.DB}, "dx": {r.backward.DX, want.backward.DX},
			} {
				for i := range pair[0] {
					if math.Float32bits(pair[0][i]) != math.Float32bits(pair[1][i]) {
						t.Fatalf("%s: %s[%d] is %g, and %g at other addresses", dev.Name(), name, i, pair[0][i], pair[1][i])
					}
				}
			}
		}
	}
}

// TestAConvolutionChecksItsArguments: in C, wrong ones would be read past the end.
func TestAConvolutionChecksItsArguments(t *testing.T) {
	for _, dev := range nn.Devices() {
		for name, spoil := range map[string]func(r *convRun){
			"x":        func(r *convRun) { r.forward.X = r.forward.X[1:] },
			"at":       func(r *convRun) { r.forward.At = r.forward.At[1:] },
			"frames":   func(r *convRun) { r.forward.Frames = r.forward.Frames[1:] },
			"scratch":  func(r *convRun) { r.forward.Scratch = r.forward.Scratch[1:] },
			"dy":       func(r *convRun) { r.backward.DY = r.backward.DY[1:] },
			"dw":       func(r *convRun) { r.backward.DW = r.backward.DW[1:] },
			"dx":       func(r *convRun) { r.backward.DX = r.backward.DX[1:] },
			"weights":  func(r *convRun) { r.backward.Weights = nil },
			"scratch2": func(r *convRun) { r.backward.Scratch = r.backward.Scratch[1:] },
		} {
			r := newConvRun(rand.New(rand.NewPCG(1, 1)), nn.NewConv(2, 5, 5, 3, 3, 1, 2, true), 2, true)
			spoil(r)
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: a convolution with %s that does not fit does not panic", dev.Name(), name)
					}
				}()
				dev.ConvForward(r.Conv, &r.forward)
				dev.ConvBackward(r.Conv, &r.backward)
			}()
		}
	}
}
