package engine

import (
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// pooling is a MaxPool that does not follow a Conv2D.
type pooling struct {
	nn.Pool
	channels int
	needed   bool

	at            []uint8
	yRoom, dxRoom []float32
}

func newPooling(in model.Shape, size int, needed bool) *pooling {
	return &pooling{Pool: nn.Pool{Height: in.Height, Width: in.Width, Size: size}, channels: in.Channels, needed: needed}
}

func (l *pooling) forward(p *pass, x []float32) []float32 {
	n := p.n * l.channels * l.Outputs()
	y := grow(&l.yRoom, n)
	l.at = grow(&l.at, n)
	p.dev.PoolForward(l.Pool, y, l.at, x)
	return y
}

func (l *pooling) backward(p *pass, dy []float32) []float32 {
	if !l.needed {
		return nil
	}
	dx := grow(&l.dxRoom, p.n*l.channels*l.Height*l.Width)
	p.dev.PoolBackward(l.Pool, dx, l.at, dy)
	return dx
}
