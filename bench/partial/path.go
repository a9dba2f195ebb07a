package partial

import (
	"fmt"
	"math"
	"sort"
)

// course is an undisturbed run, with its state after every step.
type course struct {
	blocks         []Block
	values, arrays int
	states         [][]float32 // by version
	loss           []float64   // by version
	least          []float64   // smallest loss up to a version
	target         float64     // a run has ended when its loss is at most this
	end            float64     // when that happens on this path, in steps
}

// patience is the limit on the time to the target, as a multiple of the whole path.
const patience = 3

func newCourse(p Problem, seed uint64) (*course, error) {
	w, err := p.Open(seed)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Close() }()
	path := &course{}
	path.blocks, path.values, path.arrays = w.Blocks()
	x := make([]float32, path.values*path.arrays)
	if err := w.Init(x); err != nil {
		return nil, err
	}
	for version := 0; ; version++ {
		loss, err := w.Loss(x)
		if err != nil {
			return nil, err
		}
		path.states = append(path.states, append([]float32(nil), x...))
		path.loss = append(path.loss, loss)
		least := loss
		if version > 0 {
			least = math.Min(least, path.least[version-1])
		}
		path.least = append(path.least, least)
		if version == p.Steps {
			break
		}
		if err := w.Step(x, version); err != nil {
			return nil, err
		}
	}
	return path, path.aim()
}

// aim sets the target: the mean loss of the last twentieth of the path, so that the noise of one
// batch does not matter.
func (p *course) aim() error {
	tail := p.loss[len(p.loss)-max(1, len(p.loss)/20):]
	for _, l := range tail {
		p.target += l / float64(len(tail))
	}
	if !(p.target < p.loss[0]) {
		return fmt.Errorf("the loss goes from %g to %g in %d steps", p.loss[0], p.target, p.last())
	}
	for v := 1; ; v++ {
		if p.loss[v] <= p.target {
			p.end = crossingAt(v-1, p.loss[v-1], v, p.loss[v], p.target)
			return nil
		}
	}
}

// last returns the last version.
func (p *course) last() int { return len(p.states) - 1 }

// bytes returns the size of a state.
func (p *course) bytes() int64 { return 4 * int64(p.values) * int64(p.arrays) }

// crossingAt returns where the line from (a, la) to (b, lb), with la > target ≥ lb, reaches the
// target.
func crossingAt(a int, la float64, b int, lb, target float64) float64 {
	return float64(a) + float64(b-a)*(la-target)/(la-lb)
}

// rework continues from a state, and returns how many steps later than on the path the target is
// reached; negative means earlier. It overwrites x. ok is false if the target is not reached within
// the limit. Near the target, the loss is computed at each step. Far from it, a quarter of the
// steps that the path would still need are made at once; if these turn out to be too many, they are
// repeated one by one.
func (p *course) rework(w Workload, x []float32, version int) (steps float64, ok bool, err error) {
	before, err := w.Loss(x)
	if err != nil {
		return 0, false, err
	}
	return p.reworkFrom(w, x, version, before)
}

// reworkFrom is rework from a state whose loss is known.
func (p *course) reworkFrom(w Workload, x []float32, version int, before float64) (steps float64, ok bool, err error) {
	if before <= p.target {
		return float64(version) - p.end, true, nil
	}
	kept := make([]float32, len(x))
	for end, careful := version+patience*p.last(), false; version < end; {
		stride := 1
		if !careful {
			stride = max(1, int(p.left(before)/4))
			copy(kept, x)
		}
		for i := range stride {
			if err := w.Step(x, version+i); err != nil {
				return 0, false, err
			}
		}
		loss, err := w.Loss(x)
		if err != nil {
			return 0, false, err
		}
		if loss <= p.target && stride > 1 {
			copy(x, kept)
			careful = true
			continue
		}
		if loss <= p.target {
			return crossingAt(version, before, version+1, loss, p.target) - p.end, true, nil
		}
		if math.IsNaN(loss) {
			return 0, false, nil
		}
		before, version = loss, version+stride
	}
	return 0, false, nil
}

// left returns the number of steps that the path needs from the given loss.
func (p *course) left(loss float64) float64 {
	at := sort.Search(len(p.least), func(v int) bool { return p.least[v] <= loss })
	return p.end - float64(at)
}
