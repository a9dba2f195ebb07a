package modeltest

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Oracle returns the mean loss of a batch at params, and the number of labels that are predicted
// correctly. With training, it is the loss that a gradient belongs to, with dropout.
type Oracle func(params []float64, b model.Batch, training bool) (loss float64, correct int)

// Reference returns the oracle of a description with layers. It computes each layer by its
// definition, with plain loops in float64, one example at a time.
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
			labels := d.Input.Labels()
			for k, class := range b.Y[i*labels : (i+1)*labels] {
				loss, right := judge(logits[k*d.Input.Classes:][:d.Input.Classes], int(class))
				sum += loss
				if right {
					correct++
				}
			}
		}
		return sum / float64(len(b.Y)), correct
	}
}

// judge returns the cross-entropy of logits, and whether the first largest logit is that of class.
func judge(logits []float64, class int) (loss float64, right bool) {
	best, total := 0, 0.0
	for j, z := range logits {
		total += math.Exp(z - logits[class])
		if z > logits[best] {
			best = j
		}
	}
	return math.Log(total), best == class
}

// forward returns the logits of example number i.
func forward(d *model.Description, params, x []float64, i int, seed uint64, training bool) []float64 {
	var forks [][]float64
	for at, l := range d.Layers {
		in, out := d.Shapes[at], d.Shapes[at+1]
		y := make([]float64, out.Values())
		switch l := l.(type) {
		case model.Dense:
			params = multiply(y, x, params, in.Values(), l.Out)
		case model.Conv2D:
			n := l.Filters * in.Channels * l.Kernel * l.Kernel
			convolve(y, x, params[:n], params[n:n+l.Filters], l, in, out)
			params = params[n+l.Filters:]
		case model.MaxPool:
			pool(y, x, l.Size, in, out)
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
		case model.Fork:
			copy(y, x)
			forks = append(forks, x)
		case model.Join:
			for j, v := range forks[len(forks)-1] {
				y[j] = x[j] + v
			}
			forks = forks[:len(forks)-1]
		case model.GELU:
			for j, v := range x {
				y[j] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
		case model.Attention:
			for h := range l.Heads {
				attend(y, x, h, l.Heads, out)
			}
		case model.Embedding:
			tokens, positions := params[:d.Input.Classes*l.Width], params[d.Input.Classes*l.Width:]
			params = positions[in.Width*l.Width:]
			for j := range y {
				y[j] = tokens[int(x[j/l.Width])*l.Width+j%l.Width] + positions[j]
			}
		case model.Linear:
			params = multiply(y, x, params, in.Width, l.Out)
		case model.LayerNorm:
			w, b := params[:in.Width], params[in.Width:2*in.Width]
			params = params[2*in.Width:]
			for lo := 0; lo < len(y); lo += in.Width {
				normalise(y[lo:lo+in.Width], x[lo:lo+in.Width], w, b)
			}
		default:
			panic(fmt.Sprintf("modeltest: no definition of %T", l))
		}
		x = y
	}
	return x
}

// multiply sets each row of y to the same row of x times w, plus b. w and b are the first of
// params; multiply returns the rest of params. A row of x has inputs values, a row of y has outputs
// values.
func multiply(y, x, params []float64, inputs, outputs int) []float64 {
	w, b := params[:inputs*outputs], params[inputs*outputs:]
	for j := range y {
		y[j] = b[j%outputs]
		for k, v := range x[j/outputs*inputs:][:inputs] {
			y[j] += v * w[k*outputs+j%outputs]
		}
	}
	return b[outputs:]
}

func pool(y, x []float64, size int, in, out model.Shape) {
	for j := range y {
		c, row, column := j/(out.Height*out.Width), j/out.Width%out.Height, j%out.Width
		y[j] = math.Inf(-1)
		for r := range size {
			for s := range size {
				y[j] = math.Max(y[j], x[(c*in.Height+row*size+r)*in.Width+column*size+s])
			}
		}
	}
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

func normalise(y, x, w, b []float64) {
	n, mean, variance := float64(len(x)), 0.0, 0.0
	for _, v := range x {
		mean += v / n
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / n
	}
	for j, v := range x {
		y[j] = (v-mean)/math.Sqrt(variance+model.LayerNormEpsilon)*w[j] + b[j]
	}
}

// attend computes head h of an Attention. A row of x consists of queries, keys and values.
func attend(y, x []float64, h, heads int, out model.Shape) {
	size := out.Width / heads
	at := func(t, part, j int) float64 { return x[t*3*out.Width+part*out.Width+h*size+j] }
	for t := range out.Height {
		var p []float64
		total := 0.0
		for s := range t + 1 {
			score := 0.0
			for j := range size {
				score += at(t, 0, j) * at(s, 1, j) / math.Sqrt(float64(size))
			}
			p = append(p, math.Exp(score))
			total += math.Exp(score)
		}
		for j := range size {
			for s := range p {
				y[t*out.Width+h*size+j] += p[s] / total * at(s, 2, j)
			}
		}
	}
}
