package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// resumable checks that the settings fit the checkpoints of the run in t.Out, and that one of these
// can be restored. The servers would check that too, but only after the settings in the run's
// folder had been replaced by ones that do not fit. And if all checkpoints are damaged or gone,
// they would start from the initialisation, which only the user may decide. If an older checkpoint
// than the newest is restored, t.passed says so for the log.
func (t *Training) resumable(ctx context.Context, p *job.Problem) error {
	where, err := t.StoreName()
	if err != nil {
		return err
	}
	at, err := t.Place(ctx, where)
	if err != nil {
		return err
	}
	m, _, err := ckpt.Newest(at.FS, at.Dir)
	if err == nil {
		err = t.Fits(m, p)
	}
	if err != nil && !errors.Is(err, ckpt.ErrNoCheckpoint) {
		return fmt.Errorf("--resume %s: %w", t.Resume, err)
	}
	// The coordinator looks again, and reports what it skips.
	store := job.Checkpoints{Settings: &t.Settings, Problem: p, FS: at.FS, Dir: at.Dir, Log: slog.New(slog.DiscardHandler)}
	name, _, err := store.NewestOf(ctx, "")
	if err != nil {
		return fmt.Errorf("--resume %s: %w", t.Resume, err)
	}
	all, err := ckpt.List(at.FS, at.Dir)
	if err != nil {
		return fmt.Errorf("--resume %s: %w", t.Resume, err)
	}
	if name == "" && len(all) > 0 {
		return fmt.Errorf("--resume %s: %w: every checkpoint is damaged, see kintsugi checkpoint verify; kintsugi checkpoint repair %s may make one of what is whole, and to begin again, use kintsugi rerun",
			t.Resume, kintsugi.ErrCorrupt, cli.Words(t.Resume))
	}
	if name != "" && name != all[0] {
		t.passed = fmt.Sprintf("checkpoint %s is damaged: going on from %s; see kintsugi checkpoint verify, and repair", all[0], name)
	}
	if name == "" {
		return t.begun(at.Name)
	}
	return nil
}

// begun returns an error if the run had a checkpoint, or should have got one from a restore, but
// there is none now. A run that ended before its first checkpoint begins again.
func (t *Training) begun(store string) error {
	earlier, err := record.ReadOutline(t.Out)
	if err != nil {
		return nil // without events, no earlier checkpoint is known
	}
	for _, c := range slices.Backward(earlier.Checkpoints) {
		if !c.Running && c.Error == "" {
			return fmt.Errorf("--resume %s: %w: it had a checkpoint of step %d, and none is in %s; kintsugi checkpoint repair %s may make one of what is left there, and to begin again, use kintsugi rerun",
				t.Resume, kintsugi.ErrCorrupt, c.Step, store, cli.Words(t.Resume))
		}
	}
	for _, n := range earlier.Notes {
		if strings.HasPrefix(n.Text, BeginsWith) {
			return fmt.Errorf("--resume %s: %w: %s, and nothing is in %s: kintsugi checkpoint restore did not come to its end; remove %s and restore again",
				t.Resume, kintsugi.ErrCorrupt, n.Text, store, t.Resume)
		}
	}
	return nil
}

// Fits checks that a run with these settings can continue from a checkpoint.
func (t *Training) Fits(m *ckpt.RunManifest, p *job.Problem) error {
	if err := m.Fits(p.Layout); err != nil {
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	schedule, err := t.Schedule()
	if err != nil {
		return err
	}
	if m.Rule != schedule.Rule {
		return fmt.Errorf("%w: its checkpoint holds the state of %v on the servers, not of %v; leave --optimizer, --local-steps and --outer as they were", kintsugi.ErrUsage, m.Rule, schedule.Rule)
	}
	if uint64(m.Step) > t.Steps {
		return fmt.Errorf("%w: --steps %d: it has done %d already", kintsugi.ErrUsage, t.Steps, m.Step)
	}
	return nil
}

// remaining returns the faults that an earlier part of a run has not carried out. A worker that was
// slowed down and not restored is to be slowed down again.
func remaining(faults []launch.Fault, earlier []record.Fault) []launch.Fault {
	ends := map[launch.FaultKind]launch.ActionKind{launch.Kill: launch.ActKill, launch.Pause: launch.ActPause, launch.Slow: launch.ActUnslow, launch.Lose: launch.ActLose}
	return slices.DeleteFunc(slices.Clone(faults), func(f launch.Fault) bool {
		return slices.ContainsFunc(earlier, func(e record.Fault) bool { return e.Fault == f.String() && e.Action == ends[f.Kind].String() })
	})
}

// forgetControl removes the files that an earlier part of the run left for the workers. Faults that
// are still active are carried out again.
func forgetControl(dir string) error {
	if err := os.RemoveAll(record.ControlDir(dir)); err != nil {
		return fmt.Errorf("clear the word to the workers: %w", err)
	}
	return nil
}

// BeginsWith begins the note in a run that starts from a checkpoint. Such a run cannot begin before
// that checkpoint exists.
const BeginsWith = "it begins with "
