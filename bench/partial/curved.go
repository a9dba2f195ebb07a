package partial

import (
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

// curvatureHalfLife is the number of steps after which a gradient has half its weight in the
// curvature of its block. It is a guess: several times the distance between two saves, but short
// compared with a run.
const curvatureHalfLife = 64

// bend turns p, which uses distances, into the strategy curved or secant.
func (p *planned) bend(strategy string, w Workload) error {
	curved := strings.HasPrefix(strategy, "curved")
	if r, ok := w.(riser); ok && curved {
		p.distance = r.Rise
		return nil
	}
	g, ok := w.(gradienter)
	if !ok {
		return mismatch("its steps have no gradient")
	}
	if curved && g.SquaredGradients(p.saved) != nil {
		p.distance = func(b Block, x, saved []float32) float64 {
			return scar.Rise(g.SquaredGradients(x)[b.Lo:b.Hi], x[b.Lo:b.Hi], saved[b.Lo:b.Hi])
		}
		return nil
	}
	k := scar.NewCurvature(len(p.path.blocks), curvatureHalfLife)
	p.weigh = k.Weigh
	if p.observe = p.squares(k, g); !curved {
		p.observe = p.secant(k, g)
	}
	return nil
}

// squares returns an observer of the mean squares of gradients.
func (p *planned) squares(k *scar.Curvature, g gradienter) func(state []float32, version int) error {
	return func(state []float32, version int) error {
		grads, err := g.Gradient(state, version)
		if err != nil {
			return err
		}
		for i, b := range p.path.blocks {
			k.Observe(kintsugi.ChunkID(i), kernels.SquaredNorm(grads[b.Lo:b.Hi])/float64(b.Hi-b.Lo), 1)
		}
		return nil
	}
}

// secant returns an observer of how gradients change: those of one batch before and after a step. A
// real run does not compute the second gradient, so this shows the value of knowing the curvature.
func (p *planned) secant(k *scar.Curvature, g gradienter) func(state []float32, version int) error {
	var before []float32 // the state of the previous version; nil: none
	return func(state []float32, version int) error {
		if before != nil {
			old, err := g.Gradient(before, version)
			if err != nil {
				return err
			}
			old = slices.Clone(old)
			now, err := g.Gradient(state, version)
			if err != nil {
				return err
			}
			change, step := minus(now, old), minus(state[:p.path.values], before[:p.path.values])
			for i, b := range p.path.blocks {
				k.Observe(kintsugi.ChunkID(i), dot(change[b.Lo:b.Hi], step[b.Lo:b.Hi]), kernels.SquaredNorm(step[b.Lo:b.Hi]))
			}
		}
		before = slices.Clone(state)
		return nil
	}
}

func minus(x, y []float32) []float32 {
	d := make([]float32, len(x))
	for i := range d {
		d[i] = x[i] - y[i]
	}
	return d
}

func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return sum
}
