package engine

import "github.com/kintsugi-ml/kintsugi/worker/model"

// relu is a ReLU that follows neither a Dense nor a Conv2D.
type relu struct {
	values int
	needed bool
	y      []float32
	room   []float32
}

func newReLU(values int, needed bool) *relu { return &relu{values: values, needed: needed} }

func (l *relu) forward(p *pass, x []float32) []float32 {
	l.y = grow(&l.room, p.n*l.values)
	p.dev.ReLU(l.y, x)
	return l.y
}

func (l *relu) backward(p *pass, dy []float32) []float32 {
	if !l.needed {
		return nil
	}
	p.dev.ReLUGradient(dy, l.y, dy)
	return dy
}

// dropout multiplies its input by the mask of model.DropoutMask.
type dropout struct {
	layer  int // index in the description
	rate   float32
	values int
	needed bool

	p                *pass
	x, y, mask       []float32
	yRoom, maskRoom  []float32
	forwardsExamples func(part, lane int)
}

// maskedExamples is the number of examples in one part of drawing masks.
const maskedExamples = 8

func newDropout(index int, rate float32, values int, needed bool) *dropout {
	l := &dropout{layer: index, rate: rate, values: values, needed: needed}
	l.forwardsExamples = l.forwardPart
	return l
}

func (l *dropout) forward(p *pass, x []float32) []float32 {
	if !p.train {
		return x
	}
	n := p.n * l.values
	l.p, l.x, l.y, l.mask = p, x, grow(&l.yRoom, n), grow(&l.maskRoom, n)
	p.each((p.n+maskedExamples-1)/maskedExamples, l.forwardsExamples)
	return l.y
}

func (l *dropout) forwardPart(part, _ int) {
	first := part * maskedExamples
	lo, hi := first*l.values, min(l.p.n, first+maskedExamples)*l.values
	model.DropoutMask(l.mask[lo:hi], l.p.seed, l.layer, l.rate, l.p.first+first, l.values)
	l.p.dev.Multiply(l.y[lo:hi], l.x[lo:hi], l.mask[lo:hi])
}

func (l *dropout) backward(p *pass, dy []float32) []float32 {
	if !l.needed {
		return nil
	}
	p.dev.Multiply(dy, dy, l.mask)
	return dy
}
