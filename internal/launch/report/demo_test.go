package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// demo makes the events of a run of n steps with three failures: of a server at a quarter, which
// costs a restore; of a worker at 45 %; and of a server at 70 %, whose replica takes over.
func demo(n int, seed uint64) ([]record.Event, []byte) {
	rng := rand.New(rand.NewPCG(seed, 7))
	d := &demoRun{rng: rng, n: n, line: 1, perStep: 38.0 / float64(n)}
	d.add(&record.Header{Format: record.Format, Start: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Model: "lenet", Parameters: 61706,
		Data: "digits", Consistency: "dbw", Recovery: "checkpoint", Codec: "int8", Device: "cpu", Servers: 2, Workers: 6, Replicas: 1,
		Steps: uint64(n), Version: "0.1.0"})
	quarter := n / 4
	d.train(1, quarter)
	d.fail("server/0", "killed by a fault")
	d.now += 3.1
	back := quarter - n/14
	d.line++
	d.add(&record.View{Number: 2, Line: d.line, RestoredStep: uint64(back), Reason: "server/0 came back and the run restarts from its checkpoint"})
	d.now += 0.6
	d.train(back+1, n*45/100)
	d.fail("worker/4", "signal: segmentation fault")
	d.absent, d.until = 4, d.now+4
	d.train(n*45/100+1, n*7/10)
	d.fail("server/1", "killed by a fault")
	d.now += 0.8
	d.train(n*7/10+1, n)
	d.add(&record.Note{Level: "warn", Text: "worker/5 is 4.0 times slower than the median"})
	return d.events, []byte("model: lenet\ndata: digits\nworkers: 6\nservers: 2\nconsistency: dbw\nrecovery: checkpoint\ncheckpoint:\n  interval: 10s\n  keep: 3\noptimizer:\n  rule: momentum\n  learning-rate: 0.05\n  momentum: 0.9\ncodec: int8\nfaults:\n  - kill server/0 at step 150 for 3s\n  - kill worker/4 at 18s for 4s\nseed: 1\n")
}

type demoRun struct {
	rng     *rand.Rand
	events  []record.Event
	now     float64
	perStep float64
	line    uint64
	n       int
	absent  uint32 // the worker that is away
	until   float64
}

func (d *demoRun) add(e record.Event) {
	switch e := e.(type) {
	case *record.Step:
		e.Seconds = d.now
	case *record.Failure:
		e.Seconds = d.now
	case *record.View:
		e.Seconds = d.now
	case *record.Checkpoint:
		e.Seconds = d.now
	case *record.Evaluation:
		e.Seconds = d.now
	case *record.Note:
		e.Seconds = d.now
	}
	d.events = append(d.events, e)
}

func (d *demoRun) fail(part, cause string) {
	d.now += 0.001
	d.add(&record.Failure{Part: part, Cause: cause, Incarnation: 1, Injected: part != "worker/4"})
}

func (d *demoRun) train(lo, hi int) {
	for s := lo; s <= hi; s++ {
		d.now += d.perStep * (0.7 + 0.6*d.rng.Float64())
		progress := float64(s) / float64(d.n)
		quota := uint32(6)
		if progress > 0.12 {
			quota = 5
		}
		if progress > 0.8 {
			quota = 6
		}
		var counted []uint32
		for w := range uint32(6) {
			away := w == d.absent && d.now < d.until
			late := w == 5 && quota < 6 && d.rng.Float64() < 0.85
			if !away && !late {
				counted = append(counted, w)
			}
		}
		d.add(&record.Step{Line: d.line, Step: uint64(s), Loss: record.Number(0.06 + 2.2*math.Exp(-7*progress) + d.rng.NormFloat64()*(0.02+0.12*math.Exp(-4*progress))),
			Counted: counted, Workers: 6, Quota: quota, Examples: 32 * uint32(len(counted)), ApplySeconds: d.perStep / 10,
			PushedBytes: 61706 * uint64(len(counted)), PulledBytes: 61706 * 24})
		if s%max(1, d.n/14) == 0 {
			d.add(&record.Checkpoint{Line: d.line, Step: uint64(s), Manifest: fmt.Sprintf("%d-%d", d.line, s), Bytes: 493648})
		}
		if s%max(1, d.n/24) == 0 {
			d.add(&record.Evaluation{Line: d.line, Step: uint64(s), Loss: 0.1, Accuracy: record.Number(0.985 - 0.9*math.Exp(-9*progress) - 0.01*d.rng.Float64()), Examples: 1000})
		}
	}
}
