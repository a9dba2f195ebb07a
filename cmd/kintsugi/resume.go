package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// resumable checks that the settings suit the newest checkpoint of the run in t.Out. The servers would
// find out as well, but only after the settings of the run had been replaced by those that do not fit.
func (t *training) resumable(p *problem) error {
	m, _, err := ckpt.Newest(vfs.OS{}, filepath.Join(t.Out, checkpointsDir))
	if errors.Is(err, ckpt.ErrNoCheckpoint) {
		return nil // it ended before its first one, and begins again
	}
	if err != nil {
		return fmt.Errorf("--resume %s: %w", t.Resume, err)
	}
	if err := m.Fits(p.layout); err != nil {
		return fmt.Errorf("%w: --resume %s: %w", kintsugi.ErrUsage, t.Resume, err)
	}
	schedule, err := t.schedule()
	if err != nil {
		return err
	}
	if m.Rule != schedule.Rule {
		return fmt.Errorf("%w: --resume %s: its checkpoint holds the state of another optimizer than %s; leave --optimizer away",
			kintsugi.ErrUsage, t.Resume, t.Optimizer)
	}
	return nil
}

// remaining returns the faults that an earlier part of a run has not carried out. A worker that was
// slowed down and not sped up again is still to be slow.
func remaining(faults []launch.Fault, earlier []record.Fault) []launch.Fault {
	ends := map[launch.FaultKind]launch.ActionKind{launch.Kill: launch.ActKill, launch.Pause: launch.ActPause, launch.Slow: launch.ActUnslow}
	return slices.DeleteFunc(slices.Clone(faults), func(f launch.Fault) bool {
		return slices.ContainsFunc(earlier, func(e record.Fault) bool { return e.Fault == f.String() && e.Action == ends[f.Kind].String() })
	})
}

// forgetControl removes what an earlier part of the run left for the workers: the faults that still hold
// are carried out again.
func forgetControl(dir string) error {
	if err := os.RemoveAll(record.ControlDir(dir)); err != nil {
		return fmt.Errorf("clear the word to the workers: %w", err)
	}
	return nil
}
