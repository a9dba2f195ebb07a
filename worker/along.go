package worker

import (
	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// along measures the dot product of a worker's gradients with the displacement of the parameters,
// for kintsugi.Along. It keeps a copy of the parameters of the newest version that the worker has
// computed on.
type along struct {
	params  []float32
	line    kintsugi.Line
	version kintsugi.Step
	any     bool    // params hold a version
	whole   bool    // a gradient on that version was completed
	own     float64 // ⟨g, m⟩ of that gradient g and the message m that was sent for it
}

// newAlong returns nil if a message is as good as its gradient for this codec, or if the pace does
// not ask for it.
func newAlong(codec compress.Codec, pace kintsugi.Pace, values int) *along {
	if !pace.Along || codec == nil {
		return nil
	}
	switch codec.Encoding() {
	case kernels.Sign, kernels.Sparse16, kernels.Sparse32, kernels.LowRank:
		return &along{params: make([]float32, values)}
	}
	return nil
}

// begin measures the previous gradient, which grads still holds, before the gradient that id names
// is computed on params. After that, grads has no valid contents until end is called.
func (a *along) begin(id kintsugi.PushID, params, grads []float32) (t kintsugi.Along) {
	if a == nil {
		return t
	}
	whole := a.whole
	a.whole = false
	if !a.any || a.line != id.Line || a.version+1 != id.Version {
		return t
	}
	t.Known = true
	if whole {
		t.Earlier, t.Before, t.Own = true, dotDifference(grads, params, a.params), a.own
	}
	return t
}

// end measures a completed gradient. If the gradient was not completed, end forgets the previous
// one.
func (a *along) end(t *kintsugi.Along, id kintsugi.PushID, params, grads []float32, whole bool) {
	if a == nil {
		return
	}
	if t.Known && whole {
		t.Dot = dotDifference(grads, params, a.params)
	} else {
		*t = kintsugi.Along{}
	}
	copy(a.params, params)
	a.line, a.version, a.any, a.whole, a.own = id.Line, id.Version, true, whole, 0
}

// sent notes the message that was sent for the gradient that id names.
func (a *along) sent(e *encoder, id kintsugi.PushID) {
	if a != nil && a.any && a.line == id.Line && a.version == id.Version {
		a.own = e.own(id)
	}
}

// dotDifference returns ⟨g, w − before⟩, computed in float64.
func dotDifference(g, w, before []float32) (sum float64) {
	for i, v := range g {
		sum += float64(float64(v) * (float64(w[i]) - float64(before[i])))
	}
	return sum
}

// dot returns ⟨x, y⟩, computed in float64.
func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(float64(v) * float64(y[i]))
	}
	return sum
}
