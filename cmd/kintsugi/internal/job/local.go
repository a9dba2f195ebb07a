package job

import (
	"io"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	gpuengine "github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Runs whose workers take several local steps before they push what came of them.

// mostLocalSteps bounds --local-steps, far above what is of use: a worker that takes a step of the
// run once in an hour could as well train alone.
const mostLocalSteps = 100_000

// local reports whether workers take local steps.
func (s *Settings) local() bool { return s.LocalSteps > 1 }

// outer returns --outer for conductor.Schedule.Outer. Late gradients act like momentum: each goes on
// in a direction that others have taken meanwhile (Mitliagkas et al., 2016). So where they count,
// auto adds none.
func (s *Settings) outer() (string, error) {
	if s.Outer != "" && s.Outer != "auto" {
		return s.Outer, nil
	}
	c, err := agg.Preset(s.Consistency)
	if err == nil && c.Pace().Staleness > 0 {
		return "sgd", nil
	}
	return "auto", err
}

// exchanges returns how many steps of the run have at least n local steps of each worker.
func (s *Settings) exchanges(n uint64) uint64 {
	each := uint64(max(1, s.LocalSteps))
	return (n + each - 1) / each
}

// LeastTime returns the least time of what a worker pushes.
func (s *Settings) LeastTime() time.Duration {
	return s.GradientTime * time.Duration(max(1, s.LocalSteps))
}

// locally returns a function that takes local steps along the gradients of another one, which m
// computes: on the GPU of m, or in its program, if that can.
func (p *Problem) locally(s *Settings, gradient worker.Gradient, m io.Closer) (worker.Gradient, error) {
	schedule, err := s.schedule()
	if err != nil {
		return nil, err
	}
	p.Layers = nil // nothing is final before the last local step
	plan, rule := s.plan(schedule, p.Layout), kernels.Rule(schedule.Rule)
	if running, ok := m.(*program.Program); ok && running.Takes() {
		return p.Program.steps(s, running, &plan, rule, p.Layout), nil
	}
	if g, ok := m.(GPUModel); ok {
		trainer, err := gpuengine.NewLocal(g.Engine, rule, p.batch)
		if err != nil {
			return nil, err
		}
		p.trainer = &localTrainer{trainer, plan}
		return p.trainer.fetched, nil
	}
	device, err := s.KernelDevice()
	if err != nil {
		return nil, err
	}
	return worker.Gradient(local.New(local.Config{Plan: plan, Layout: p.Layout, Device: device, Rule: rule, Gradient: local.Gradient(gradient)})), nil
}

// plan returns the local steps of this run.
func (s *Settings) plan(schedule conductor.Schedule, layout *kintsugi.Layout) local.Plan {
	fine := schedule.Finer(s.LocalSteps)
	plan := local.Plan{
		Steps: s.LocalSteps,
		Scalars: func(version kintsugi.Step, i, tensor int) kernels.Scalars {
			at := version*kintsugi.Step(s.LocalSteps) + kintsugi.Step(i) + 1
			return server.TensorScalars(fine.Aged(at, kintsugi.Step(i)+1), layout, tensor)
		},
		Rate: func(version kintsugi.Step, tensor int) float32 {
			return server.TensorScalars(schedule.At(version+1), layout, tensor).LearningRate
		},
	}
	if s.ClipNorm > 0 {
		plan.Clipped = agg.Config{ClipNorm: s.ClipNorm}.Clipped
	}
	return plan
}
