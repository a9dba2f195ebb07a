package nn

import "fmt"

// Conv is a convolution with stride 1, followed by bias, ReLU and max-pooling. Its weights are
// [Filters, Channels, Kernel, Kernel], its images [Channels, Height, Width].
//
// # How it is computed
//
// An image is copied into a frame: its channels, surrounded by Pad zeros. Let results have the rows
// of the frame, so that a result lies at position row·stride + column. Then all values that meet
// one weight lie at a constant distance from their results, called the tap of that weight. So a
// convolution adds, for each weight, a multiple of a shifted array to another array. The image need
// not be unfolded: everything happens in registers, on values that stay in the first-level cache.
// The price is Kernel−1 results at the end of each row that nobody reads.
//
// The gradient for the image is the same computation: the gradient for the result, surrounded by
// zeros, is correlated with the weights rotated by 180°. The gradient for a weight is the dot
// product of a shifted frame and the gradient for the result.
type Conv struct {
	Channels, Height, Width int
	Filters, Kernel, Pad    int
	Pool                    int  // edge of the pooling windows; 1: no pooling
	ReLU                    bool // applied after the pooling, with which it commutes

	rows, cols       int // of the result before pooling
	outRows, outCols int // of the pooled result
	stride           int // from row to row of a frame, and of a result in frame rows
	plane            int // values of a channel of a frame
	frame            int // values of a frame
	zPlane           int // values of a channel of the result before pooling
	lead             int // zeros before a channel of the gradient for that result
	dzPlane, dz      int // values of a channel, and of an image, of that gradient
	dxPlane          int // values of a channel of the gradient for a frame
	taps, backTaps   []int32
}

// slack is the number of values past the end of a channel that vector code may read or write.
const slack = 16

// NewConv returns a convolution with the given geometry. It panics if a size is not positive, pad is
// negative, pool exceeds 15, or the result is empty.
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

// Inputs, Outputs and Weights return the number of values of an image, of its result, and of the
// weights.
func (c *Conv) Inputs() int  { return c.Channels * c.Height * c.Width }
func (c *Conv) Outputs() int { return c.Filters * c.outRows * c.outCols }
func (c *Conv) Weights() int { return c.Filters * len(c.taps) }

// FrameValues returns the number of values of the frame of one image.
func (c *Conv) FrameValues() int { return c.frame }

// ForwardScratch and BackwardScratch return the number of values of scratch that a pass needs; the
// backward pass is over up to n images.
func (c *Conv) ForwardScratch() int       { return c.Filters * c.zPlane }
func (c *Conv) BackwardScratch(n int) int { return n*c.dz + c.Channels*c.dxPlane }

// positions returns how many consecutive positions of a frame cover all rows of the result before
// pooling.
func (c *Conv) positions() int { return (c.rows-1)*c.stride + c.cols }

// corner returns the position of an image's first value in its frame, and how many consecutive
// positions cover the image's rows.
func (c *Conv) corner() (at, n int) { return c.Pad*c.stride + c.Pad, (c.Height-1)*c.stride + c.Width }

// Arrange overwrites forward and backward with the weights w, in the orders in which ConvForward
// and ConvBackward read them: by tap, and within a tap by filter or by channel. All three have
// Weights() values; backward may be nil.
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

// ConvForward holds the arguments of a forward pass over N images.
type ConvForward struct {
	N       int
	X       []float32 // the images
	Y       []float32 // overwritten with the results
	At      []uint8   // overwritten: the place row·Pool+column in its window of each result, or 255 where the ReLU is 0
	Frames  []float32 // overwritten, for ConvBackward; zero before the first use, for this Conv alone
	Weights []float32 // forward, as Arrange has written them
	Bias    []float32
	Scratch []float32 // at least ForwardScratch() values; used by one call at a time
}

func (a *ConvForward) check(c *Conv) {
	n := a.N
	if n < 1 || len(a.X) != n*c.Inputs() || len(a.Y) != n*c.Outputs() || len(a.At) != len(a.Y) || len(a.Frames) != n*c.frame ||
		len(a.Weights) != c.Weights() || len(a.Bias) != c.Filters || len(a.Scratch) < c.ForwardScratch() {
		panic(fmt.Sprintf("nn: a convolution of %d images has x %d, y %d, at %d, frames %d, weights %d, bias %d, scratch %d values",
			n, len(a.X), len(a.Y), len(a.At), len(a.Frames), len(a.Weights), len(a.Bias), len(a.Scratch)))
	}
}

// ConvBackward holds the arguments of a backward pass over N images.
type ConvBackward struct {
	N       int
	DY      []float32 // the gradient for the results
	At      []uint8   // from the forward pass
	Frames  []float32 // from the forward pass
	Weights []float32 // backward, as Arrange has written them; unused if DX is nil
	DX      []float32 // overwritten with the gradient for the images; nil: not computed
	DW      []float32 // overwritten with the gradient for the weights, summed over the images
	DB      []float32 // overwritten with the gradient for the bias, summed over the images
	Scratch []float32 // at least BackwardScratch(N) values; like Frames, and for one call at a time
}

func (a *ConvBackward) check(c *Conv) {
	n := a.N
	if n < 1 || len(a.DY) != n*c.Outputs() || len(a.At) != len(a.DY) || len(a.Frames) != n*c.frame || len(a.DW) != c.Weights() ||
		len(a.DB) != c.Filters || len(a.Scratch) < c.BackwardScratch(n) || a.DX != nil && (len(a.DX) != n*c.Inputs() || len(a.Weights) != c.Weights()) {
		panic(fmt.Sprintf("nn: the gradient of a convolution of %d images has dy %d, at %d, frames %d, weights %d, dx %d, dw %d, db %d, scratch %d values",
			n, len(a.DY), len(a.At), len(a.Frames), len(a.Weights), len(a.DX), len(a.DW), len(a.DB), len(a.Scratch)))
	}
}
