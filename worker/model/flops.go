package model

// GradientFLOPs returns the floating-point operations of the matrix products in the gradient of one example, a
// multiplication and an addition counted as two. A product counts once forward and twice backward, for its weights
// and for its input; the first layer with parameters has no gradient for its input. Whatever is not a product
// is not counted, so an engine's rate is comparable with that of products alone.
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
		case Attention: // scores and sums of values; a row looks at itself and those before
			sum += 3 * 2 * 2 * float64(out.Values()) * float64(out.Height+1) / 2
			continue
		case Embedding: // not a product, but has parameters
		default:
			continue
		}
		passes = 3
	}
	return sum
}
