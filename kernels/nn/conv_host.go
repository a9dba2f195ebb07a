package nn

func (host) ConvForward(c *Conv, a *ConvForward) {
	a.check(c)
	out := c.Outputs()
	for i := range a.N {
		frame := a.Frames[i*c.frame:][:c.frame]
		c.intoFrame(frame, a.X[i*c.Inputs():][:c.Inputs()])
		correlate(a.Scratch, c.zPlane, frame, c.taps, a.Weights, c.Filters, c.positions())
		for f, bias := range a.Bias {
			lo := i*out + f*c.outRows*c.outCols
			hi := lo + c.outRows*c.outCols
			poolPlane(a.Y[lo:hi], a.At[lo:hi], a.Scratch[f*c.zPlane:], c.stride, c.Pool, c.outCols)
			addBias(a.Y[lo:hi], a.At[lo:hi], bias, c.ReLU)
		}
	}
}

// addBias adds bias to y and applies the ReLU. Where the ReLU is 0, it notes in at that no gradient
// passes.
func addBias(y []float32, at []uint8, bias float32, relu bool) {
	for j := range y {
		y[j] += bias
		if relu && y[j] <= 0 {
			y[j], at[j] = 0, blocked
		}
	}
}

// blocked, in place of a place in the window, says that no gradient passes.
const blocked = 255

func (host) ConvBackward(c *Conv, a *ConvBackward) {
	a.check(c)
	clear(a.DB)
	out, area := c.Outputs(), c.outRows*c.outCols
	dxs, dzs := a.Scratch[:c.Channels*c.dxPlane], a.Scratch[c.Channels*c.dxPlane:]
	for i := range a.N {
		for f := range c.Filters {
			lo := i*out + f*area
			a.DB[f] += unpoolPlane(dzs[i*c.dz+f*c.dzPlane+c.lead:], a.At[lo:lo+area], a.DY[lo:lo+area], c.stride, c.Pool, c.outCols)
		}
	}
	c.weights(a.DW, a.Frames, dzs, a.N)
	if a.DX == nil {
		return
	}
	corner, n := c.corner()
	for i := range a.N {
		correlate(dxs[corner:], c.dxPlane, dzs[i*c.dz+corner:][:c.dz-corner], c.backTaps, a.Weights, c.Channels, n)
		c.outOfFrame(a.DX[i*c.Inputs():][:c.Inputs()], dxs)
	}
}

// intoFrame copies an image into a frame, whose border is already 0.
func (c *Conv) intoFrame(frame, image []float32) {
	for ch := range c.Channels {
		for r := range c.Height {
			copy(frame[ch*c.plane+(r+c.Pad)*c.stride+c.Pad:], image[(ch*c.Height+r)*c.Width:][:c.Width])
		}
	}
}

// outOfFrame copies an image out of a frame whose channels have dxPlane values.
func (c *Conv) outOfFrame(image, frame []float32) {
	for ch := range c.Channels {
		for r := range c.Height {
			copy(image[(ch*c.Height+r)*c.Width:][:c.Width], frame[ch*c.dxPlane+(r+c.Pad)*c.stride+c.Pad:])
		}
	}
}

// correlate computes the first n values of each of m channels of out, which lie plane values apart.
// Position p of channel i becomes the sum over taps t of w[t·m + i]·in[taps[t] + p].
func correlate(out []float32, plane int, in []float32, taps []int32, w []float32, m, n int) {
	for i := range m {
		sum := out[i*plane:][:n]
		clear(sum)
		t := 0
		for ; t+4 <= len(taps); t += 4 {
			a, b, c, d := w[t*m+i], w[(t+1)*m+i], w[(t+2)*m+i], w[(t+3)*m+i]
			x, y, u, v := in[taps[t]:][:n], in[taps[t+1]:][:n], in[taps[t+2]:][:n], in[taps[t+3]:][:n]
			for p := range sum {
				sum[p] += (a*x[p] + b*y[p]) + (c*u[p] + d*v[p])
			}
		}
		for ; t < len(taps); t++ {
			a, x := w[t*m+i], in[taps[t]:][:n]
			for p := range sum {
				sum[p] += a * x[p]
			}
		}
	}
}

// weights overwrites dw. The gradient of the weight at tap t is the sum, over n images and all
// positions p, of frame[t + p] times the gradient for the result at p.
func (c *Conv) weights(dw, frames, dzs []float32, n int) {
	clear(dw)
	positions, depth := c.positions(), len(c.taps)
	for i := range n {
		frame := frames[i*c.frame:][:c.frame]
		for f := range c.Filters {
			d := dzs[i*c.dz+f*c.dzPlane+c.lead:][:positions]
			row := dw[f*depth:][:depth]
			t := 0
			for ; t+4 <= depth; t += 4 {
				x, y := frame[c.taps[t]:][:positions], frame[c.taps[t+1]:][:positions]
				u, v := frame[c.taps[t+2]:][:positions], frame[c.taps[t+3]:][:positions]
				var a, b, e, g float32
				for p, z := range d {
					a, b, e, g = a+z*x[p], b+z*y[p], e+z*u[p], g+z*v[p]
				}
				row[t], row[t+1], row[t+2], row[t+3] = row[t]+a, row[t+1]+b, row[t+2]+e, row[t+3]+g
			}
			for ; t < depth; t++ {
				sum := float32(0)
				for p, x := range frame[c.taps[t]:][:positions] {
					sum += d[p] * x
				}
				row[t] += sum
			}
		}
	}
}
