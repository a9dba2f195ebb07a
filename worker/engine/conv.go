package engine

import (
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// convImages is the number of images in one part of a convolution. Their gradients fit into a
// second-level cache. Each part sums the gradient of the weights separately.
const convImages = 8

// conv is a Conv2D, with the following ReLU and MaxPool if there are any.
type conv struct {
	*nn.Conv
	w, b   tensor
	needed bool

	p                       *pass
	x, y, dy, dx            []float32
	at                      []uint8
	frames                  []float32 // images of the piece, each surrounded by zeros
	forwardW, backwardW     []float32 // the weights in the order that the kernels need
	sums                    []float32 // by part: gradients of weights and bias
	lanes                   []convLane
	yRoom, dxRoom           []float32
	sumsRoom                []float32
	forwardsIt, backwardsIt func(part, lane int)
}

// convLane is the memory of one thread: scratch, and arguments of the kernels. Local variables for
// the arguments would be allocated in each call.
type convLane struct {
	scratch  []float32
	forward  nn.ConvForward
	backward nn.ConvBackward
}

func newConv(w, b tensor, in model.Shape, l model.Conv2D, relu bool, pool int, needed bool) *conv {
	c := &conv{Conv: nn.NewConv(in.Channels, in.Height, in.Width, l.Filters, l.Kernel, l.Pad, pool, relu), w: w, b: b, needed: needed}
	c.forwardW = make([]float32, c.Weights())
	if needed {
		c.backwardW = make([]float32, c.Weights())
	}
	c.forwardsIt, c.backwardsIt = c.forwardPart, c.backwardPart
	return c
}

func (c *conv) parts() int { return (c.p.n + convImages - 1) / convImages }

// images returns the range of images of a part.
func (c *conv) images(part int) (lo, hi int) {
	return part * convImages, min(c.p.n, (part+1)*convImages)
}

func (c *conv) forward(p *pass, x []float32) []float32 {
	p.need(c.w.lo, c.b.hi)
	n := p.n * c.Outputs()
	c.p, c.x, c.y, c.at = p, x, grow(&c.yRoom, n), grow(&c.at, n)
	if len(c.frames) < p.n*c.FrameValues() {
		c.frames = make([]float32, p.n*c.FrameValues())
	}
	if c.lanes == nil {
		c.lanes = make([]convLane, p.threads)
		for i := range c.lanes {
			c.lanes[i].scratch = make([]float32, c.ForwardScratch()+c.BackwardScratch(convImages))
		}
	}
	c.Arrange(c.forwardW, c.backwardW, c.w.of(p.params))
	p.each(c.parts(), c.forwardsIt)
	return c.y
}

func (c *conv) forwardPart(part, lane int) {
	lo, hi := c.images(part)
	t := &c.lanes[lane]
	t.forward = nn.ConvForward{
		N: hi - lo, X: c.x[lo*c.Inputs() : hi*c.Inputs()], Y: c.y[lo*c.Outputs() : hi*c.Outputs()], At: c.at[lo*c.Outputs() : hi*c.Outputs()],
		Frames: c.frames[lo*c.FrameValues() : hi*c.FrameValues()], Weights: c.forwardW, Bias: c.b.of(c.p.params),
		Scratch: t.scratch[:c.ForwardScratch()],
	}
	c.p.dev.ConvForward(c.Conv, &t.forward)
}

func (c *conv) backward(p *pass, dy []float32) []float32 {
	c.p, c.dy, c.dx = p, dy, nil
	if c.needed {
		c.dx = grow(&c.dxRoom, p.n*c.Inputs())
	}
	parts, each := c.parts(), c.b.hi-c.w.lo
	c.sums = grow(&c.sumsRoom, parts*each)
	p.each(parts, c.backwardsIt)
	grads := p.grads[c.w.lo:c.b.hi]
	if !p.more {
		clear(grads)
	}
	p.dev.AddRowSums(grads, c.sums, parts)
	p.ready(c.w.lo, c.b.hi)
	return c.dx
}

func (c *conv) backwardPart(part, lane int) {
	lo, hi := c.images(part)
	sums := c.sums[part*(c.b.hi-c.w.lo):][:c.b.hi-c.w.lo]
	t := &c.lanes[lane]
	t.backward = nn.ConvBackward{
		N: hi - lo, DY: c.dy[lo*c.Outputs() : hi*c.Outputs()], At: c.at[lo*c.Outputs() : hi*c.Outputs()],
		Frames: c.frames[lo*c.FrameValues() : hi*c.FrameValues()], Weights: c.backwardW,
		DW: sums[:c.Weights()], DB: sums[c.Weights():], Scratch: t.scratch[c.ForwardScratch():],
	}
	if c.dx != nil {
		t.backward.DX = c.dx[lo*c.Inputs() : hi*c.Inputs()]
	}
	c.p.dev.ConvBackward(c.Conv, &t.backward)
}
