package worker

import (
	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// along measures how a worker's gradients lie along the displacement of the parameters, for
// kintsugi.Along. It keeps the parameters of the newest version that the worker has computed on.
type along struct {
	params  []float32
	line    kintsugi.Line
	version kintsugi.Step
	any     bool    // params hold a version
	whole   bool    // a gradient on it was computed to its end
	own     float64 // ⟨g, m⟩ of that gradient and what was sent of it
}

// newAlong returns nil where messages are as good as gradients, or nobody asks.
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

// begin measures the gradient that grads still hold, before the one that id names is computed on
// params: from here on they hold nothing of use until end is called.
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

// end measures a gradient that was computed to its end, or, if it was not, forgets that of before.
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

// sent notes what was sent of the gradient that id names.
func (a *along) sent(e *encoder, id kintsugi.PushID) {
	if a != nil && a.any && a.line == id.Line && a.version == id.Version {
		a.own = e.own(id)
	}
}

// dotDifference returns ⟨g, w − before⟩.
func dotDifference(g, w, before []float32) (sum float64) {
	for i, v := range g {
		sum += float64(float64(v) * (float64(w[i]) - float64(before[i])))
	}
	return sum
}

// dot returns ⟨x, y⟩.
func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(float64(v) * float64(y[i]))
	}
	return sum
}
