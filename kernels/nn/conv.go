package nn

import "fmt"

// Conv is a convolution at stride 1 with the bias, the ReLU and the max-pooling behind it. Its weights are
// [Filters, Channels, Kernel, Kernel]; images are [Channels, Height, Width].
//
// # How it is computed
//
// An image is copied into a frame: its channels with Pad zeros around. In a frame, the values that
// meet one weight lie at a constant distance (a tap) from where the result lies, if results have
// the rows of the frame: at position row·stride + column. So a convolution is, for each weight, a
// multiple of a shifted array added to another, and there is no need to unfold the image: all is
// done in registers, on values that stay in the first-level cache. The price is Kernel−1 results in
// each row that nobody reads.
//
// The gradient for the image is the same computation: a correlation of the gradient for the result,
// with zeros around, with the weights turned by half. The gradient for a weight is the dot product
// of a shifted frame and the gradient for the result.
type Conv struct {
	Channels, Height, Width int
	Filters, Kernel, Pad    int
	Pool                    int  // edge of the windows; 1: no pooling
	ReLU                    bool // after the pooling, with which it commutes

	rows, cols       int // of the plain result
	outRows, outCols int // of the pooled one
	stride           int // from row to row of a frame and of a result in it
	plane            int // values of a channel of a frame
	frame            int // values of a frame
	zPlane           int // values of a channel of a plain result
	lead             int // zeros before a channel of the gradient for the plain result
	dzPlane, dz      int // values of a channel, and of an image, of that
	dxPlane          int // values of a channel of the gradient for a frame
	taps, backTaps   []int32
}

// slack is how many values vector code may read or write past the end of a channel.
const slack = 16

// NewConv returns a convolution with that geometry. It panics if a size is not positive or the result is empty.
func NewConv(channels, height, width, filters, kernel, pad, pool int, relu bool) *Conv {
	c := &Conv{Channels: channels, Height: height, Width: width, Filters: filters, Kernel: kernel, Pad: pad, Pool: pool, ReLU: relu}
	c.rows, c.cols = height+2*pad-kernel+1, width+2*pad-kernel+1
	if min(channels, height, width, filters, kernel, pool) < 1 || pad < 0 || min(c.rows, c.cols) < pool || pool > 15 {
		panic(fmt.Sprintf("nn: no convolution has %+v", *c))
	}
	c.outRows, c.outCols = c.rows/pool, c.cols/pool
	c.stride = width + 2*pad
	c.plane = (height + 2*pad) * c.stride
	c.frame = round16(channels*c.plane + kernel + slack)
	c.zPlane = round16(c.rows*c.stride) + slack
	c.lead = max(16, round16((kernel-1)*(c.stride+1)))
	c.dzPlane = c.lead + round16(c.rows*c.stride)
	c.dz = round16(filters*c.dzPlane + c.lead + c.stride + 2*slack)
	c.dxPlane = round16(c.plane) + slack
	for i := range channels * kernel * kernel {
		ch, ky, kx := i/(kernel*kernel), i/kernel%kernel, i%kernel
		c.taps = append(c.taps, int32(ch*c.plane+ky*c.stride+kx))
	}
	for i := range filters * kernel * kernel {
		f, ky, kx := i/(kernel*kernel), i/kernel%kernel, i%kernel
		c.backTaps = append(c.backTaps, int32(f*c.dzPlane+c.lead-ky*c.stride-kx))
	}
	return c
}

func round16(n int) int { return (n + 15) &^ 15 }

// Inputs returns the values of an image, Outputs those of its result, Weights the number of weights.
func (c *Conv) Inputs() int  { return c.Channels * c.Height * c.Width }
func (c *Conv) Outputs() int { return c.Filters * c.outRows * c.outCols }
func (c *Conv) Weights() int { return c.Filters * len(c.taps) }

// FrameValues returns how many values the frame of one image takes.
func (c *Conv) FrameValues() int { return c.frame }

// ForwardScratch and BackwardScratch return how many values of scratch the passes need, the latter for up to n images.
func (c *Conv) ForwardScratch() int       { return c.Filters * c.zPlane }
func (c *Conv) BackwardScratch(n int) int { return n*c.dz + c.Channels*c.dxPlane }

// positions returns how many consecutive positions of a frame hold the rows of the plain result.
func (c *Conv) positions() int { return (c.rows-1)*c.stride + c.cols }

// corner returns the position of an image's first value in its frame, and how many consecutive positions hold
// its rows.
func (c *Conv) corner() (at, n int) { return c.Pad*c.stride + c.Pad, (c.Height-1)*c.stride + c.Width }

// Arrange overwrites forward and backward, of Weights() values each, with the weights in the orders in which
// ConvForward and ConvBackward read them: by tap, and within a tap by filter or by channel. backward may be nil.
func (c *Conv) Arrange(forward, backward, w []float32) {
	depth, area := len(c.taps), c.Kernel*c.Kernel
	checkEqual(len(forward), len(w), c.Filters*depth)
	for f := range c.Filters {
		for t, v := range w[f*depth:][:depth] {
			forward[t*c.Filters+f] = v
		}
	}
	if backward == nil {
		return
	}
	checkEqual(len(backward), len(w), len(w))
	for f := range c.Filters {
		for t, v := range w[f*depth:][:depth] {
			backward[(f*area+t%area)*c.Channels+t/area] = v
		}
	}
}

// ConvForward are the arguments of a forward pass over N images.
type ConvForward struct {
	N       int
	X       []float32 // the images
	Y       []float32 // overwritten with the results
	At      []uint8   // overwritten with the place in its window that each result came from, row·Pool+column, or 255 where the ReLU is 0
	Frames  []float32 // overwritten with the frames, which ConvBackward reads; once zeroed, used with this Conv alone
	Weights []float32 // as Arrange has them
	Bias    []float32
	Scratch []float32 // of ForwardScratch() values; of one call at a time
}

func (a *ConvForward) check(c *Conv) {
	n := a.N
	if n < 1 || len(a.X) != n*c.Inputs() || len(a.Y) != n*c.Outputs() || len(a.At) != len(a.Y) || len(a.Frames) != n*c.frame ||
		len(a.Weights) != c.Weights() || len(a.Bias) != c.Filters || len(a.Scratch) < c.ForwardScratch() {
		panic(fmt.Sprintf("nn: a convolution of %d images has x %d, y %d, at %d, frames %d, weights %d, bias %d, scratch %d values",
			n, len(a.X), len(a.Y), len(a.At), len(a.Frames), len(a.Weights), len(a.Bias), len(a.Scratch)))
	}
}

// ConvBackward are the arguments of a backward pass over N images.
type ConvBackward struct {
	N       int
	DY      []float32 // the gradient for the results
	At      []uint8   // from the forward pass
	Frames  []float32 // from the forward pass
	Weights []float32 // as Arrange has them, backward; nil if DX is
	DX      []float32 // overwritten with the gradient for the images; nil: not wanted
	DW      []float32 // overwritten with the gradient for the weights, summed over the images
	DB      []float32 // the same for the bias
	Scratch []float32 // of BackwardScratch(N) values or more; once zeroed, used with this Conv alone, by one call at a time
}

func (a *ConvBackward) check(c *Conv) {
	n := a.N
	if n < 1 || len(a.DY) != n*c.Outputs() || len(a.At) != len(a.DY) || len(a.Frames) != n*c.frame || len(a.DW) != c.Weights() ||
		len(a.DB) != c.Filters || len(a.Scratch) < c.BackwardScratch(n) || a.DX != nil && (len(a.DX) != n*c.Inputs() || len(a.Weights) != c.Weights()) {
		panic(fmt.Sprintf("nn: the gradient of a convolution of %d images has dy %d, at %d, frames %d, weights %d, dx %d, dw %d, db %d, scratch %d values",
			n, len(a.DY), len(a.At), len(a.Frames), len(a.Weights), len(a.DX), len(a.DW), len(a.DB), len(a.Scratch)))
	}
}
