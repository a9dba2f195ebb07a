package job

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/local"
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

// locally returns a function that takes local steps along the gradients of another.
func (p *Problem) locally(s *Settings, gradient worker.Gradient) (worker.Gradient, error) {
	schedule, err := s.schedule()
	if err != nil {
		return nil, err
	}
	device, err := s.KernelDevice()
	if err != nil {
		return nil, err
	}
	fine, layout := schedule.Finer(s.LocalSteps), p.Layout
	p.Layers, p.batch = nil, nil // nothing is final before the last local step, and it is not the gradient of one batch
	var clipped func(squaredNorm float64) float64
	if s.ClipNorm > 0 {
		clipped = agg.Config{ClipNorm: s.ClipNorm}.Clipped
	}
	plan := local.Plan{
		Steps: s.LocalSteps, Clipped: clipped,
		Scalars: func(version kintsugi.Step, i, tensor int) kernels.Scalars {
			at := version*kintsugi.Step(s.LocalSteps) + kintsugi.Step(i) + 1
			return server.TensorScalars(fine.Aged(at, kintsugi.Step(i)+1), layout, tensor)
		},
		Rate: func(version kintsugi.Step, tensor int) float32 {
			return server.TensorScalars(schedule.At(version+1), layout, tensor).LearningRate
		},
	}
	return worker.Gradient(local.New(local.Config{Plan: plan, Layout: layout, Device: device, Rule: kernels.Rule(schedule.Rule), Gradient: local.Gradient(gradient)})), nil
}
