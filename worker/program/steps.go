package program

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Steps says which local steps a program takes by itself, on a copy of the parameters: a step of the
// rule along the gradient of each batch. Tensors that have the same rates form a group.
type Steps struct {
	ID       kintsugi.PushID // of what the steps come to; each batch has a version of its own
	Rule     kernels.Rule    // but for Add and Assign
	Scalars  kernels.Scalars // Momentum, Beta1, Beta2 and Epsilon, which are those of all steps
	ClipNorm float64         // the longest norm of a gradient along which a step is taken; 0: any

	Groups  []int     // by tensor, its group
	Decays  []float32 // by group, the weight decay
	Units   []float32 // by group, the learning rate in whose units the way back is
	Batches []StepBatch
}

// StepBatch is a batch of local steps, with the learning rate of its step by group.
type StepBatch struct {
	Version kintsugi.Step
	Seed    uint64
	Indices []int // nil: the program draws the examples itself
	Rates   []float32
}

// Takes reports whether the program takes local steps by itself.
func (p *Program) Takes() bool { return p.about.Takes }

// Take has the program take local steps from params on, and overwrites grads with the way back: the
// parameters at the beginning less those at the end, in units of the learning rate. It returns the
// mean of the losses, each before its step, and the number of examples. Otherwise it is as Gradient.
func (p *Program) Take(ctx context.Context, params, grads []float32, s *Steps) (loss float64, examples int, err error) {
	if err := p.lend(ctx, params); err != nil {
		return 0, 0, err
	}
	type batch struct {
		Version kintsugi.Step `json:"version"`
		Seed    uint64        `json:"seed"`
		Indices []int         `json:"indices,omitempty"`
		Rates   []float32     `json:"rates"`
	}
	var batches []batch
	drawn := 0
	for _, b := range s.Batches {
		batches = append(batches, batch{b.Version, plain(b.Seed), b.Indices, b.Rates})
		drawn += len(b.Indices)
	}
	a, err := p.ask(ctx, "steps", fields{
		"slot": s.ID.Slot, "local_rank": p.localRank, "sequence": s.ID.Sequence, "rule": s.Rule.String(), "momentum": s.Scalars.Momentum, "betas": []float32{s.Scalars.Beta1, s.Scalars.Beta2},
		"epsilon": s.Scalars.Epsilon, "clip_norm": s.ClipNorm, "groups": s.Groups, "decays": s.Decays, "units": s.Units, "batches": batches,
	})
	if err != nil {
		return 0, 0, fmt.Errorf("ask %s for %d local steps: %w", p.name, len(batches), err)
	}
	return p.gradient(a, grads, drawn)
}
