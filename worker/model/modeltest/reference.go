package modeltest

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Oracle returns the mean loss of a batch at params and the number of examples classified correctly.
// When training is set it is the loss a gradient belongs to, with dropout.
type Oracle func(params []float64, b model.Batch, training bool) (loss float64, correct int)

// Reference returns the oracle of a description with layers: the definition of each layer, in loops, in
// float64, one example at a time.
func Reference(d *model.Description) Oracle {
	return func(params []float64, b model.Batch, training bool) (float64, int) {
		sum, correct := 0.0, 0
		features := d.Input.Features()
		for i := range b.N {
			x := make([]float64, features)
			for j := range x {
				x[j] = float64(b.X[i*features+j])
			}
			logits := forward(d, params, x, i, b.Seed, training)
			class, best, total := int(b.Y[i]), 0, 0.0
			for j, z := range logits {
				total += math.Exp(z - logits[class])
				if z > logits[best] {
					best = j
				}
			}
			sum += math.Log(total)
			if best == class {
				correct++
			}
		}
		return sum / float64(b.N), correct
	}
}

// forward returns the logits of example number i.
func forward(d *model.Description, params, x []float64, i int, seed uint64, training bool) []float64 {
	for at, l := range d.Layers {
		in, out := d.Shapes[at], d.Shapes[at+1]
		y := make([]float64, out.Values())
		switch l := l.(type) {
		case model.Dense:
			n := in.Values() * l.Out
			w, b := params[:n], params[n:n+l.Out]
			params = params[n+l.Out:]
			for j := range y {
				y[j] = b[j]
				for k, v := range x {
					y[j] += v * w[k*l.Out+j]
				}
			}
		case model.Conv2D:
			n := l.Filters * in.Channels * l.Kernel * l.Kernel
			convolve(y, x, params[:n], params[n:n+l.Filters], l, in, out)
			params = params[n+l.Filters:]
		case model.MaxPool:
			for j := range y {
				c, row, column := j/(out.Height*out.Width), j/out.Width%out.Height, j%out.Width
				y[j] = math.Inf(-1)
				for r := range l.Size {
					for s := range l.Size {
						y[j] = math.Max(y[j], x[(c*in.Height+row*l.Size+r)*in.Width+column*l.Size+s])
					}
				}
			}
		case model.ReLU:
			for j := range y {
				y[j] = math.Max(0, x[j])
			}
		case model.Dropout:
			copy(y, x)
			if training && l.Rate > 0 {
				mask := make([]float32, len(x))
				model.DropoutMask(mask, seed, at, l.Rate, i, len(x))
				for j := range y {
					y[j] *= float64(mask[j])
				}
			}
		case model.Flatten:
			copy(y, x)
		}
		x = y
	}
	return x
}

func convolve(y, x, w, b []float64, l model.Conv2D, in, out model.Shape) {
	for j := range y {
		f, row, column := j/(out.Height*out.Width), j/out.Width%out.Height, j%out.Width
		y[j] = b[f]
		for c := range in.Channels {
			for r := range l.Kernel {
				for s := range l.Kernel {
					ix, iy := column+s-l.Pad, row+r-l.Pad
					if ix >= 0 && ix < in.Width && iy >= 0 && iy < in.Height {
						y[j] += x[(c*in.Height+iy)*in.Width+ix] * w[((f*in.Channels+c)*l.Kernel+r)*l.Kernel+s]
					}
				}
			}
		}
	}
}
