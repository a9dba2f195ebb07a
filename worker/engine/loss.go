package engine

import "github.com/kintsugi-ml/kintsugi/kernels/nn"

// lossRows is the number of rows of logits in one part: enough that the exponentials take longer
// than waking a thread.
const lossRows = 64

// loss is the softmax cross-entropy of logits.
type loss struct {
	classes int

	p       *pass
	logits  []float32
	d       []float32 // gradient of the logits; nil in an evaluation
	scale   float64   // of the gradient: 1 / number of rows in the whole batch
	dRoom   []float32
	losses  []float64 // by part
	correct []int
	part    func(part, lane int)
}

func newLoss(classes int) *loss {
	l := &loss{classes: classes}
	l.part = l.rows
	return l
}

// compute returns the sum of the losses of rows of logits, and the number of rows whose first
// largest logit is that of the label. If the pass computes a gradient, d is the gradient of the
// logits, multiplied by scale.
func (l *loss) compute(p *pass, logits []float32, scale float64) (sum float64, correct int, d []float32) {
	parts := (len(p.labels) + lossRows - 1) / lossRows
	l.p, l.logits, l.scale, l.d = p, logits, scale, nil
	l.losses, l.correct = grow(&l.losses, parts), grow(&l.correct, parts)
	if p.grads != nil {
		l.d = grow(&l.dRoom, len(logits))
	}
	p.each(parts, l.part)
	for i, v := range l.losses {
		sum += v
		correct += l.correct[i]
	}
	return sum, correct, l.d
}

func (l *loss) rows(part, _ int) {
	lo := part * lossRows
	hi := min(len(l.p.labels), lo+lossRows)
	a, b := lo*l.classes, hi*l.classes
	var d []float32
	if l.d != nil {
		d = l.d[a:b]
	}
	l.losses[part], l.correct[part] = nn.CrossEntropy(d, l.logits[a:b], l.p.labels[lo:hi], l.scale)
}
