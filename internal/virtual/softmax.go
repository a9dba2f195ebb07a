package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// Softmax is multinomial logistic regression on images that are averaged over squares of pixels. It
// is so small that a gradient takes microseconds, and convex, so the true moments of its gradients
// can be computed. It is immutable and safe for concurrent use.
type Softmax struct {
	batch  int
	inputs int // number of inputs, including the constant 1
	n      int
	x      []float32 // [n, inputs]
	used   []uint16  // for each example, the indices of inputs that are not zero
	from   []int32   // n+1 offsets in used: the first of each example
	y      []uint8
}

// NewSoftmax returns the model for the first n training images of a set. The sides of images are
// divided by pool, and gradients are those of batches of the given size. If the set has no images
// or more than ten classes, that is a usage error.
func NewSoftmax(set *data.Set, n, pool, batch int) (*Softmax, error) {
	n = min(n, set.Train.Len())
	channels, height, width := set.Shape[0], set.Shape[1], set.Shape[2]
	if set.Sequence || set.Train.Labels() != 1 || set.Classes > classes || height < pool || width < pool {
		return nil, fmt.Errorf("%w: softmax regression needs images of at most %d classes, and %s has none", kintsugi.ErrUsage, classes, set.Name)
	}
	h, w := height/pool, width/pool
	s := &Softmax{batch: batch, inputs: h*w*channels + 1, n: n, y: make([]uint8, n), from: make([]int32, n+1)}
	s.x = make([]float32, n*s.inputs)
	pixels, labels, indices := make([]float32, n*set.Train.Values()), make([]int32, n), make([]int, n)
	for i := range indices {
		indices[i] = i
	}
	set.Train.Fill(pixels, labels, indices)
	low, high := slices.Min(pixels), slices.Max(pixels)
	scale := 1 / (max(high-low, 1e-6) * float32(pool*pool)) // the background becomes 0, and is skipped below
	for i := range n {
		s.y[i] = uint8(labels[i])
		row := s.x[i*s.inputs : (i+1)*s.inputs]
		row[len(row)-1] = 1
		image := pixels[i*set.Train.Values():]
		for c := range channels {
			for r := range h * pool {
				for q := range w * pool {
					row[(c*h+r/pool)*w+q/pool] += float32((image[(c*height+r)*width+q] - low) * scale)
				}
			}
		}
	}
	if channels > 1 {
		s.centre()
	}
	s.index()
	return s, nil
}

// centre subtracts its mean from each input. Photographs have no black background, and with the
// common part a learning rate that suits the rest would diverge.
func (s *Softmax) centre() {
	for j := range s.inputs - 1 {
		sum := 0.0
		for i := range s.n {
			sum += float64(s.x[i*s.inputs+j])
		}
		mean := float32(sum / float64(s.n))
		for i := range s.n {
			s.x[i*s.inputs+j] -= mean
		}
	}
}

// index lists the inputs of each example that are not zero.
func (s *Softmax) index() {
	for i := range s.n {
		for j, v := range s.x[i*s.inputs : (i+1)*s.inputs] {
			if v != 0 {
				s.used = append(s.used, uint16(j))
			}
		}
		s.from[i+1] = int32(len(s.used))
	}
}

// classes is the number of classes of the model. If the set has fewer, the last ones are unused.
const classes = 10

// Values implements Problem.
func (s *Softmax) Values() int { return s.inputs * classes }

// WithBatch returns the same model with another batch size. It shares memory with s.
func (s *Softmax) WithBatch(batch int) *Softmax {
	other := *s
	other.batch = batch
	return &other
}

// Init implements Problem. It starts from zero, as good as any other start of a convex model.
func (s *Softmax) Init(params []float32) { clear(params) }

// Gradient implements Problem: the mean over a batch of examples that are drawn with replacement.
func (s *Softmax) Gradient(params, grads []float32, source *rand.Rand) float64 {
	clear(grads)
	loss := 0.0
	for range s.batch {
		loss += s.add(params, grads, source.IntN(s.n))
	}
	scale := 1 / float32(s.batch)
	for i := range grads {
		grads[i] *= scale
	}
	return loss / float64(s.batch)
}

// Part implements Divisible.
func (s *Softmax) Part(params, grads []float32, source *rand.Rand, share float64) float64 {
	part := int(share*float64(s.batch) + 1e-6) // an example that is complete except for rounding counts as complete
	if part < 1 {
		return 0
	}
	s.WithBatch(part).Gradient(params, grads, source)
	return float64(part) / float64(s.batch)
}

// Full sets grads to the gradient over all examples, and returns the loss.
func (s *Softmax) Full(params, grads []float32) float64 {
	clear(grads)
	loss := 0.0
	for i := range s.n {
		loss += s.add(params, grads, i)
	}
	scale := 1 / float32(s.n)
	for i := range grads {
		grads[i] *= scale
	}
	return loss / float64(s.n)
}

// Moments returns the true moments of gradients at params: the squared norm of the full gradient,
// and the total variance of the gradient of one batch. It overwrites grads.
func (s *Softmax) Moments(params, grads []float32) (square, variance float64) {
	s.Full(params, grads)
	for _, g := range grads {
		square += float64(g) * float64(g)
	}
	each := 0.0
	var p [classes]float32
	for i := range s.n {
		s.forward(params, i, &p)
		p[s.y[i]]--
		var x, e float64
		for _, v := range s.x[i*s.inputs : (i+1)*s.inputs] {
			x += float64(v) * float64(v)
		}
		for _, v := range p {
			e += float64(v) * float64(v)
		}
		each += x * e // the gradient of an example is an outer product
	}
	return square, (each/float64(s.n) - square) / float64(s.batch)
}

// Loss implements Problem: the mean loss over all examples.
func (s *Softmax) Loss(params []float32) float64 {
	loss := 0.0
	var p [classes]float32
	for i := range s.n {
		loss += s.forward(params, i, &p)
	}
	return loss / float64(s.n)
}

// add adds the gradient of an example to grads and returns its loss. The loops over classes are
// unrolled, as a simulation spends most of its time here.
func (s *Softmax) add(params, grads []float32, i int) float64 {
	var p [classes]float32
	loss := s.forward(params, i, &p)
	p[s.y[i]]--
	x := s.x[i*s.inputs : (i+1)*s.inputs]
	for _, j := range s.used[s.from[i]:s.from[i+1]] {
		v, g := x[j], (*[classes]float32)(grads[int(j)*classes:])
		g[0] += float32(v * p[0])
		g[1] += float32(v * p[1])
		g[2] += float32(v * p[2])
		g[3] += float32(v * p[3])
		g[4] += float32(v * p[4])
		g[5] += float32(v * p[5])
		g[6] += float32(v * p[6])
		g[7] += float32(v * p[7])
		g[8] += float32(v * p[8])
		g[9] += float32(v * p[9])
	}
	return loss
}

// forward sets p to the class probabilities of an example, and returns its loss.
func (s *Softmax) forward(params []float32, i int, p *[classes]float32) float64 {
	var p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 float32
	x := s.x[i*s.inputs : (i+1)*s.inputs]
	for _, j := range s.used[s.from[i]:s.from[i+1]] {
		v, w := x[j], (*[classes]float32)(params[int(j)*classes:])
		p0 += float32(v * w[0])
		p1 += float32(v * w[1])
		p2 += float32(v * w[2])
		p3 += float32(v * w[3])
		p4 += float32(v * w[4])
		p5 += float32(v * w[5])
		p6 += float32(v * w[6])
		p7 += float32(v * w[7])
		p8 += float32(v * w[8])
		p9 += float32(v * w[9])
	}
	*p = [classes]float32{p0, p1, p2, p3, p4, p5, p6, p7, p8, p9}
	most := p[0]
	for _, v := range p {
		most = max(most, v)
	}
	sum, own := 0.0, float64(p[s.y[i]]-most)
	for c, v := range p {
		e := math.Exp(float64(v - most))
		p[c] = float32(e)
		sum += e
	}
	for c := range p {
		p[c] = float32(float64(p[c]) / sum)
	}
	return math.Log(sum) - own
}
