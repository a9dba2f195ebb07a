package job

import (
	"context"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// steps returns a function that has a program take the local steps of a plan.
func (m *Program) steps(s *Settings, running *program.Program, plan *local.Plan, rule kernels.Rule, layout *kintsugi.Layout) worker.Gradient {
	sampler := m.sampler(s)
	groups, first := grouped(layout, func(tensor int) float32 { return plan.Scalars(0, 0, tensor).WeightDecay })
	return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		x := program.Steps{ID: id, Rule: rule, ClipNorm: s.ClipNorm, Groups: groups, Scalars: plan.Scalars(id.Version, 0, 0)}
		for _, t := range first {
			x.Decays = append(x.Decays, plan.Scalars(id.Version, 0, t).WeightDecay)
			x.Units = append(x.Units, plan.Rate(id.Version, t))
		}
		for i := range plan.Steps {
			at := plan.At(id, i)
			b := program.StepBatch{Version: at.Version, Seed: sampler.Seed64(at.Slot, at.Version, at.Sequence)}
			if m.About.Examples > 0 {
				b.Indices = sampler.Indices(nil, at.Slot, at.Version, at.Sequence)
			}
			for _, t := range first {
				b.Rates = append(b.Rates, plan.Scalars(id.Version, i, t).LearningRate)
			}
			x.Batches = append(x.Batches, b)
		}
		return running.Take(ctx, params, grads, &x)
	}
}

// grouped groups the tensors that have the same weight decay and the same part of the learning rate.
// It returns the group of each tensor, and the first tensor of each group.
func grouped(layout *kintsugi.Layout, decay func(tensor int) float32) (groups, first []int) {
	type kind struct{ rate, decay float32 }
	known := make(map[kind]int)
	for t := range layout.Tensors {
		k := kind{layout.Rate(t), decay(t)}
		g, ok := known[k]
		if !ok {
			g = len(first)
			known[k], first = g, append(first, t)
		}
		groups = append(groups, g)
	}
	return groups, first
}
