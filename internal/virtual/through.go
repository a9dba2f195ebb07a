package virtual

import (
	"fmt"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/kept"
)

// PathWay says how steps use what workers have learnt alone in an outage (kintsugi.KeepLocal), if a
// part of the parameters is restored to an older version, on a line that keeps the rest.
type PathWay uint8

// The ways of using a path.
const (
	PathDropped    PathWay = iota // everything is dropped, as if nothing had been learnt
	PathStayed                    // the path is used only where the parameters were kept
	PathDiscounted                // and elsewhere divided by 1 plus the number of steps by which they are older
	PathAsItWas                   // and elsewhere too, unchanged
	PathBack                      // and elsewhere as the difference to its end: kept.Queue.Onto, as workers do
)

// String describes the way in words.
func (w PathWay) String() string {
	return [...]string{"dropped", "where the shards stayed", "elsewhere by staleness", "everywhere", "elsewhere back to its end"}[w]
}

// keptApart is how many gradients a worker keeps separately, as in package worker.
const keptApart = 4

// PathWays returns all ways.
func PathWays() []PathWay {
	return []PathWay{PathDropped, PathStayed, PathDiscounted, PathAsItWas, PathBack}
}

// Through is an outage of all servers in a Training whose steps count one gradient each. After the
// outage, a part of the parameters is restored to an older version.
type Through struct {
	Step  kintsugi.Step // the servers go away after it
	Alone int           // number of gradients that each worker computes meanwhile
	Lost  float64       // share of the parameters that is restored, beginning with the first
	Age   kintsugi.Step // age of the restored version, in steps
	Way   PathWay
}

// Train trains up to the outage and after it. t.Steps is the number of steps after the outage, and
// t.Each is called for these only. It returns the loss before the outage, the loss of the
// parameters after the restore, and the number of paths that were dropped because they pointed away
// from the first gradient on the new parameters.
func (o Through) Train(t Training) (before, back float64, apart int, err error) {
	if t.Consistency.PerWorker < 2 || t.Schedule.Decay.Form != conductor.Constant || t.Schedule.Momentum != 0 || o.Alone < 0 || o.Lost < 0 || o.Lost > 1 || o.Age > o.Step || o.Step < kintsugi.Step(t.Workers) {
		return 0, 0, 0, fmt.Errorf("%w: an outage takes steps of one gradient each with a constant rate, a part of the parameters, and an age that is not before the start", kintsugi.ErrUsage)
	}
	t.Consistency.Continue, t.Consistency.Keep = true, kintsugi.KeepLocal
	calm := t
	versions := make(map[kintsugi.Step][]float32)
	calm.Steps, calm.Each = o.Step, func(e kintsugi.StepEvent, params []float32) bool {
		if e.Step+o.Age == o.Step || e.Step+kintsugi.Step(t.Workers) > o.Step {
			versions[e.Step] = append([]float32(nil), params...)
		}
		return true
	}
	if o.Age == o.Step {
		versions[0] = make([]float32, t.Problem.Values())
		t.Problem.Init(versions[0])
	}
	if _, err := Train(calm); err != nil {
		return 0, 0, 0, err
	}
	lost := kept.Range{Hi: int(o.Lost * float64(t.Problem.Values()))}
	base := append([]float32(nil), versions[o.Step]...)
	copy(base[:lost.Hi], versions[o.Step-o.Age])
	after := t
	after.From, after.Kept = base, make([]kept.Gradient, t.Workers)
	after.Seed += 1 << 20 // otherwise its batches would be those of the first part
	for slot := range after.Kept {
		version := o.Step - kintsugi.Step(slot) // in the first part each worker has read the version that counted its last gradient
		g := o.path(t, slot, version, versions[version], base, lost)
		if g.Moved {
			fresh := make([]float32, len(base))
			t.Problem.Gradient(base, fresh, rand.New(rand.NewPCG(after.Seed, uint64(slot))))
			if g.Uphill(fresh) {
				apart++
				continue
			}
		}
		after.Kept[slot] = g
	}
	if o.Way == PathDropped {
		after.Kept = nil
	}
	_, err = Train(after)
	return t.Problem.Loss(versions[o.Step]), t.Problem.Loss(base), apart, err
}

// path returns what a worker offers of what it has learnt alone.
func (o Through) path(t Training, slot int, version kintsugi.Step, params, base []float32, lost kept.Range) kept.Gradient {
	q := kept.New(kept.Config{Rule: kintsugi.KeepLocal, Values: len(base), Most: keptApart})
	rate := float32(t.Schedule.At(version + 1).LearningRate)
	end, grads := append([]float32(nil), params...), make([]float32, len(params))
	id := kintsugi.PushID{Line: simLine, Slot: kintsugi.Slot(slot), Incarnation: 1, Version: version}
	from := id
	for ; int(id.Sequence) < o.Alone; id.Sequence++ {
		loss := t.Problem.Gradient(end, grads, rand.New(rand.NewPCG(t.Seed^uint64(slot)<<40, uint64(id.Version)<<32|uint64(id.Sequence))))
		for i, g := range grads {
			end[i] -= float32(rate * g)
		}
		q.Keep(id, loss, 1, grads, false)
	}
	to := from
	to.Line, to.Version, to.Sequence = simLine+1, o.Step, 0
	restored := []kept.Part{{Range: lost, Rate: rate}}
	if o.Way != PathBack {
		restored = nil
	}
	if _, ok := q.Onto(from, to, restored, base, end); !ok {
		return kept.Gradient{}
	}
	list, _ := q.Take()
	g := list[0]
	part := map[PathWay]float32{PathAsItWas: 1, PathBack: 1, PathDiscounted: 1 / (1 + float32(o.Age))}[o.Way]
	for i := lost.Lo; i < lost.Hi; i++ {
		g.Values[i] *= part
	}
	return g
}

// ThroughPreset parses how steps count gradients in a Training with a Through.
func ThroughPreset(text string, workers int) (agg.Config, error) {
	c, err := agg.Preset(text)
	if err == nil && (c.Quota != 1 || c.Pace().Staleness != kintsugi.Infinite) {
		err = fmt.Errorf("%w: consistency %q: with --lose every gradient is a step, whatever its staleness; use async", kintsugi.ErrUsage, text)
	}
	if err == nil {
		err = c.Check(workers)
	}
	return c, err
}
