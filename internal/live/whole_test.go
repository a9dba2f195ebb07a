package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

var errMixed = errors.New("a version is seen half-written")

// oneNumber is a gradient with the same number everywhere. It is written twice, with another number
// first, so that a reader that reads it too early, or while the next one is written in its place,
// sees two numbers. The parameters have one number everywhere as long as no gradient, no sum and no
// version is ever seen half-written. If one is, they differ from then on.
func oneNumber(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
	if i := slices.IndexFunc(params, func(p float32) bool { return p != params[0] }); i >= 0 {
		return 0, 0, fmt.Errorf("%w: version %d begins with %v, and has %v at %d", errMixed, id.Version, params[0], params[i], i)
	}
	noise := float32(uint64(id.Slot+1)*uint64(id.Version+3)*uint64(id.Sequence+5)*0x9e3779b97f4a7c15>>40)/(1<<23) - 1
	d := params[0] - 1
	for _, x := range []float32{1000, d + noise/8} {
		for i := range grads {
			grads[i] = x
		}
	}
	return float64(d * d), 8, nil
}

// Workers write gradients, and read parameters, in the memory in which servers read and write them,
// several at a time, while connections are cut and a server is killed in the middle.
func TestNoTensorIsSeenHalfWritten(t *testing.T) {
	for _, wire := range []worker.Wire{worker.WireShared, worker.WireGRPC} {
		for _, consistency := range []string{"bsp:pull", "async:wait,credit=2", "backup:1,pull"} {
			if brief() && consistency == "backup:1,pull" {
				continue
			}
			t.Run(fmt.Sprintf("%v/%s", wire, consistency), func(t *testing.T) {
				cfg := base(t)
				cfg.Servers, cfg.Wire, cfg.Consistency, cfg.Gradient, cfg.Steps = 2, wire, preset(t, consistency), oneNumber, raced(120, 50)
				cfg.Schedule = conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.05}
				cfg, cuts := cutting(t, cfg)
				params := run(t, cfg, func(l *Cluster) {
					until(t, l, cfg.Steps*2/5)
					l.KillServer(1)
					if err := l.StartServer(1); err != nil {
						t.Fatal(err)
					}
					l.NewView("server/1 was killed")
				})
				for i, p := range params {
					if p != params[0] {
						t.Fatalf("parameters begin with %v, and have %v at %d", params[0], p, i)
					}
				}
				if cuts() == 0 {
					t.Error("no connection was cut")
				}
			})
		}
	}
}
