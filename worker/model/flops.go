package model

// GradientFLOPs returns the number of floating-point operations in the matrix products of one
// example's gradient. A multiplication and an addition count as two. A product counts once forward
// and twice backward: for the gradient of its weights, and for that of its input. The first layer
// with parameters has no gradient for its input. Operations outside products are not counted, so
// the rate of an engine is comparable with that of products alone.
func (d *Description) GradientFLOPs() float64 {
	sum, passes := 0.0, 2.0
	for i, l := range d.Layers {
		in, out := d.Shapes[i], d.Shapes[i+1]
		switch l := l.(type) {
		case Dense:
			sum += passes * 2 * float64(in.Values()) * float64(l.Out)
		case Conv2D:
			plain := (in.Height + 2*l.Pad - l.Kernel + 1) * (in.Width + 2*l.Pad - l.Kernel + 1)
			sum += passes * 2 * float64(plain*l.Filters) * float64(in.Channels*l.Kernel*l.Kernel)
		case Linear:
			sum += passes * 2 * float64(in.Values()) * float64(l.Out)
		case Attention: // scores and weighted sums of values; each row attends to itself and the rows before
			sum += 3 * 2 * 2 * float64(out.Values()) * float64(out.Height+1) / 2
			continue
		case Embedding: // no product, but it has parameters
		default:
			continue
		}
		passes = 3
	}
	return sum
}
