package server

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// BenchmarkStepOutside makes steps of Adam from two gradients, with and without memory outside the
// process, where a killed server finds its shard. Compare the two: the first also writes the
// parameters once more.
func BenchmarkStepOutside(b *testing.B) {
	const values = 1 << 24
	for _, outside := range []bool{true, false} {
		b.Run(fmt.Sprintf("outside=%t", outside), func(b *testing.B) {
			l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{values}}})
			if err != nil {
				b.Fatal(err)
			}
			cfg := Config{
				Layout: l, Device: kernels.Best(), Threads: 2, Slots: 2, Schedule: conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.01},
				Load: func(context.Context, kintsugi.View, *Shard) error { return nil },
			}
			if outside {
				if cfg.Outside, err = OpenOutside(filepath.Join(b.TempDir(), "state"), "run"); err != nil {
					b.Fatal(err)
				}
				defer func() { _ = cfg.Outside.Close() }()
			}
			v := kintsugi.View{Number: 1, Line: 1, Fence: 1, Replicas: 1, Chains: [][]kintsugi.ServerID{{0}}, Servers: []kintsugi.Member{{}}}
			r, err := New(cfg).newReplica(b.Context(), v, 0, l.Split(1)[0], 0)
			if err != nil {
				b.Fatal(err)
			}
			r.versions.prepare(r.buffers(), !outside)
			var counted []*held
			c := kintsugi.Commit{Line: 1, Scale: 0.5}
			for range 2 {
				h := &held{values: make([]float32, values), chunks: make([]landedChunk, len(l.Chunks))}
				for i := range h.values {
					h.values[i] = 1 / float32(1+i%7)
				}
				counted = append(counted, h)
				c.Counted = append(c.Counted, kintsugi.Weighted{Weight: 1})
			}
			step := func() {
				c.Step++
				c.Optimizer = cfg.Schedule.At(c.Step)
				src, _ := r.versions.pin(0)
				dst := r.versions.take(c.Step)
				if _, err := r.step(c, nil, src, dst, counted, nil); err != nil {
					b.Fatal(err)
				}
				if outside {
					if err := r.finish(dst, outsideRecord{}, 0); err != nil {
						b.Fatal(err)
					}
				}
				r.versions.unpin(src)
				r.versions.applied(dst)
				r.versions.publish(nil)
			}
			step()
			step()
			b.SetBytes(values * 4 * (2 + 3 + 3)) // what the step itself reads and writes
			for b.Loop() {
				step()
			}
		})
	}
}
