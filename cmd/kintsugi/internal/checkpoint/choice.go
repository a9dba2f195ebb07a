package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// newestStep stands for the newest whole checkpoint.
const newestStep = -1

// choice says which checkpoints a command is about: that of a step, or the mean of it and of some
// before it.
type choice struct {
	step    int64
	average int // number of checkpoints
}

func (c *choice) register(f *pflag.FlagSet) {
	f.Int64Var(&c.step, "step", newestStep, "step of the checkpoint; -1: the newest that is whole")
	f.IntVar(&c.average, "average", 1, "number of checkpoints, of that step and before it, of which the mean is taken")
}

// chosen returns the whole checkpoints that are chosen, newest first, each of an earlier step than
// the one before it: what an older line has of later steps was taken back.
func chosen(p job.Place, c choice) ([]*ckpt.RunManifest, error) {
	switch {
	case c.step < newestStep:
		return nil, fmt.Errorf("%w: --step %d: no step is negative; leave it away for the newest checkpoint", kintsugi.ErrUsage, c.step)
	case c.average < 1:
		return nil, fmt.Errorf("%w: --average %d: it is a number of checkpoints, at least 1", kintsugi.ErrUsage, c.average)
	}
	if c.step == newestStep {
		newest, _, err := ckpt.Newest(p.FS, p.Dir) // it tells what keeps an older one from being the newest
		if err != nil || c.average == 1 {
			return []*ckpt.RunManifest{newest}, err
		}
		c.step = int64(newest.Step)
	}
	names, err := ckpt.List(p.FS, p.Dir)
	if err != nil {
		return nil, err
	}
	var all, found []*ckpt.RunManifest
	for m, err := range ckpt.ReadEach(p.FS, p.Dir, names) {
		switch {
		case errors.Is(err, kintsugi.ErrCorrupt):
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, m)
		if len(found) == 0 && m.Step == kintsugi.Step(c.step) || len(found) > 0 && m.Step < found[len(found)-1].Step {
			if found = append(found, m); len(found) == c.average {
				return found, nil
			}
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("%s: %w", p.Name, ckpt.ErrNoCheckpoint)
	case len(found) == 0:
		return nil, fmt.Errorf("%w: --step %d: %s has whole checkpoints of steps %s", kintsugi.ErrUsage, c.step, p.Name, stepsOf(all))
	}
	return nil, fmt.Errorf("%w: --average %d: %s has %d whole checkpoints up to step %d: %s; train --checkpoint-keep says how many are kept",
		kintsugi.ErrUsage, c.average, p.Name, len(found), c.step, stepsOf(found))
}

// maxTries is how often checkpoints are chosen for one reading.
const maxTries = 10

// reading calls read with the chosen checkpoints, of, and returns those that were read. A run that is
// under way removes old checkpoints, perhaps while they are read, and then what is missing looks
// damaged. So if one of them is not listed any more, it chooses again.
func reading(p job.Place, c choice, of []*ckpt.RunManifest, read func(of []*ckpt.RunManifest) error) ([]*ckpt.RunManifest, error) {
	for try := 1; ; try++ {
		err := read(of)
		if err == nil || try == maxTries {
			return of, err
		}
		names, listed := ckpt.List(p.FS, p.Dir)
		if listed != nil || !slices.ContainsFunc(of, func(m *ckpt.RunManifest) bool { return !slices.Contains(names, m.Name()) }) {
			return of, err
		}
		if of, err = chosen(p, c); err != nil {
			return nil, err
		}
	}
}

// stepsOf lists the steps of checkpoints.
func stepsOf(all []*ckpt.RunManifest) string {
	steps := make([]string, len(all))
	for i, m := range all {
		steps[i] = strconv.FormatUint(uint64(m.Step), 10)
	}
	return strings.Join(steps, ", ")
}

// whichSteps says which checkpoints were chosen.
func whichSteps(of []*ckpt.RunManifest) string {
	switch n := len(of); {
	case n == 1:
		return "step " + stepsOf(of)
	case n > 4:
		return fmt.Sprintf("the mean of %d checkpoints of steps %d to %d", n, of[n-1].Step, of[0].Step)
	}
	return "the mean of steps " + stepsOf(of)
}

// readWhole reads a whole checkpoint into memory.
func readWhole(ctx context.Context, p job.Place, m *ckpt.RunManifest) (*ckpt.Flat, error) {
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		return nil, err
	}
	flat, err := ckpt.NewFlat(layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, m.Rule)
	if err != nil {
		return nil, err
	}
	return flat, ckpt.Restore(ctx, p.FS, p.Dir, m, layout, flat.Range, flat.Place)
}

// readParams returns the layout of a model and its parameters, or their mean over several checkpoints.
func readParams(ctx context.Context, p job.Place, of []*ckpt.RunManifest) (*kintsugi.Layout, []float32, error) {
	newest := of[0]
	if r := newest.Rule; len(of) > 1 && (r == kintsugi.RuleAdd || r == kintsugi.RuleAssign) {
		return nil, nil, fmt.Errorf("%w: --average %d: %s has counts, or rows that its steps make anew, and no mean of them is a model", kintsugi.ErrUsage, len(of), newest.Model)
	}
	layout, err := kintsugi.NewLayout(newest.Tensors)
	if err != nil {
		return nil, nil, err
	}
	params, err := ckpt.Params(ctx, p.FS, p.Dir, layout, of...)
	return layout, params, err
}
