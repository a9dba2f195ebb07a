package sim

import (
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// Softmax is multinomial logistic regression on images whose pixels are averaged in squares: a model so small
// that a gradient takes microseconds, and convex, so that the truth about it can be computed. It is immutable
// and safe for concurrent use.
type Softmax struct {
	inputs, classes int // inputs include the constant 1
	n               int
	x               []float32 // [n, inputs]
	used            []uint16  // for each example the inputs that are not zero
	from            []int32   // where those of example i begin; n+1 of them
	y               []uint8
}

// NewSoftmax returns the model of the first n images, whose sides are divided by pool.
func NewSoftmax(im *data.Images, n, pool int) *Softmax {
	im = im.Head(n)
	h, w := im.Height/pool, im.Width/pool
	s := &Softmax{inputs: h*w*im.Channels + 1, classes: im.Classes, n: im.N, y: im.Labels}
	s.x = make([]float32, s.n*s.inputs)
	s.from = make([]int32, s.n+1)
	for i := range s.n {
		row := s.x[i*s.inputs : (i+1)*s.inputs]
		row[len(row)-1] = 1
		for c := range im.Channels {
			for r := range h * pool {
				for q := range w * pool {
					p := im.Pixels[((i*im.Channels+c)*im.Height+r)*im.Width+q]
					row[(c*h+r/pool)*w+q/pool] += float32(p) / float32(255*pool*pool)
				}
			}
		}
		for j, v := range row {
			if v != 0 {
				s.used = append(s.used, uint16(j))
			}
		}
		s.from[i+1] = int32(len(s.used))
	}
	return s
}

// Values returns the number of parameters.
func (s *Softmax) Values() int { return s.inputs * s.classes }

// Gradient sets grads to the mean gradient over a batch that the source draws, and returns its mean loss.
func (s *Softmax) Gradient(params, grads []float32, batch int, source *rand.Rand) float64 {
	clear(grads)
	loss := 0.0
	for range batch {
		loss += s.add(params, grads, source.IntN(s.n))
	}
	scale := 1 / float32(batch)
	for i := range grads {
		grads[i] *= scale
	}
	return loss / float64(batch)
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

// Loss returns the loss over all examples.
func (s *Softmax) Loss(params []float32) float64 {
	loss := 0.0
	var p [16]float32
	for i := range s.n {
		loss += s.forward(params, i, p[:s.classes])
	}
	return loss / float64(s.n)
}

// add adds the gradient of an example and returns its loss.
func (s *Softmax) add(params, grads []float32, i int) float64 {
	var p [16]float32
	loss := s.forward(params, i, p[:s.classes])
	p[s.y[i]]--
	x := s.x[i*s.inputs : (i+1)*s.inputs]
	for _, j := range s.used[s.from[i]:s.from[i+1]] {
		v, g := x[j], grads[int(j)*s.classes:][:s.classes]
		for c := range g {
			g[c] += float32(v * p[c])
		}
	}
	return loss
}

// forward sets p to the probabilities of the classes of an example and returns its loss.
func (s *Softmax) forward(params []float32, i int, p []float32) float64 {
	clear(p)
	x := s.x[i*s.inputs : (i+1)*s.inputs]
	for _, j := range s.used[s.from[i]:s.from[i+1]] {
		v, w := x[j], params[int(j)*s.classes:][:s.classes]
		for c := range w {
			p[c] += float32(v * w[c])
		}
	}
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
