package checkpoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// restoring is the command that makes a new run from a checkpoint.
type restoring struct {
	out, store, config string
	step               int64
}

func restoreCommand() *cobra.Command {
	r := &restoring{}
	cmd := &cobra.Command{
		Use: "restore PATH", Short: "Make a new run that goes on from a checkpoint", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Long: "Restore reads a checkpoint, verifies every byte, and writes it as the first checkpoint of a new run folder, with the\n" +
			"settings of the run that it is from and without its faults. Parameters, the optimizer's state and the step are those of the\n" +
			"checkpoint, to the last bit; `kintsugi train --resume` goes on from there. Nothing in PATH is changed.",
		Example: "  kintsugi checkpoint restore runs/mnist --out runs/again\n" +
			"  kintsugi checkpoint restore s3://models/mnist --config runs/mnist/config.yaml --out runs/here\n" +
			"  kintsugi checkpoint restore runs/mnist --out runs/there --store s3://models",
		RunE: func(cmd *cobra.Command, args []string) error { return r.command(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&r.out, "out", "", "folder of the new run")
	f.StringVar(&r.store, "store", "", "where its checkpoints go, as for train (default: its own folder)")
	f.StringVar(&r.config, "config", "", "YAML file of settings (default: that of the run in PATH)")
	f.Int64Var(&r.step, "step", newestStep, "step of the checkpoint; -1: the newest that is whole")
	return cmd
}

func (r *restoring) command(cmd *cobra.Command, path string) error {
	if r.out == "" {
		return fmt.Errorf("%w: --out is needed: the folder of the new run", kintsugi.ErrUsage)
	}
	from, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	one := choice{step: r.step, average: 1}
	of, err := chosen(from, one)
	if err != nil {
		return err
	}
	certs, err := cmd.Flags().GetString(job.TLSFlag)
	if err != nil {
		return err
	}
	t, prob, err := r.settings(path, certs)
	if err != nil {
		return err
	}
	defer prob.Close()
	if err := t.Fits(of[0], prob); err != nil {
		return err
	}
	if err := t.Fresh(cmd.Context()); err != nil {
		return err
	}
	var flat *ckpt.Flat
	of, err = reading(from, one, of, func(of []*ckpt.RunManifest) (err error) {
		flat, err = readWhole(cmd.Context(), from, of[0])
		return err
	})
	if err != nil {
		return err
	}
	m := of[0]
	if prob.Program != nil {
		t.Described = filepath.Join(t.Out, job.DescribedFile)
	}
	rec, _, err := t.Record(false, prob)
	if err != nil {
		return err
	}
	rec.Record(time.Now(), &record.Note{Level: "info", Text: fmt.Sprintf("%s%s of %s", train.BeginsWith, m.Name(), from.Name)})
	saved := prob.Program.Keep(t.Out)
	if saved == nil {
		saved = seed(cmd.Context(), t, m, flat)
	}
	reason := fmt.Sprintf("it was restored from %s of %s", m.Name(), from.Name)
	if saved != nil {
		reason = saved.Error()
	}
	if _, err := rec.Finish(time.Now(), reason); saved == nil {
		saved = err
	} else {
		saved = fmt.Errorf("restore into %s, which holds nothing yet, remove it before the next try: %w", t.Out, saved)
	}
	if saved == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: step %d of %s; go on with: kintsugi train --resume %s\n", t.Out, m.Step, m.Model, cli.Words(t.Out))
	}
	return saved
}

// settings returns the settings of the new run. Its credentials are in the folder certs, or, if
// that is empty, in the folder of the old run.
func (r *restoring) settings(path, certs string) (*train.Training, *job.Problem, error) {
	t := &train.Training{}
	t.Register(job.NewFlagSet("restore"))
	if err := settingsOf(t, path, r.config, "say with --config which settings the new run has"); err != nil {
		return nil, nil, err
	}
	if faults, ok := t.Flags.Lookup("fault").Value.(pflag.SliceValue); ok {
		if err := faults.Replace(nil); err != nil {
			return nil, nil, err
		}
	}
	t.Out, t.Store, t.TLS = r.out, r.store, cmp.Or(certs, t.TLS)
	if err := t.Absolute(); err != nil {
		return nil, nil, err
	}
	if err := t.Check(); err != nil {
		return nil, nil, err
	}
	prob, err := job.Describe(&t.Settings)
	return t, prob, err
}

// settingsOf sets what is not set yet to the settings of the run in path, or to those of a file. If there
// is neither, the error ends with advice.
func settingsOf(t *train.Training, path, file, advice string) error {
	config := cmp.Or(file, filepath.Join(path, train.ConfigFile))
	if _, err := os.Stat(config); err != nil {
		return fmt.Errorf("%w: %s is no run folder: %s: %w", kintsugi.ErrUsage, path, advice, err)
	}
	if err := job.LoadFile(t.Flags, config); err != nil {
		return err
	}
	t.FindDescribed(filepath.Dir(config))
	return nil
}

// seed writes a model as the first checkpoint of a run.
func seed(ctx context.Context, t *train.Training, m *ckpt.RunManifest, flat *ckpt.Flat) error {
	store, err := t.StoreName()
	if err != nil {
		return err
	}
	to, err := t.Place(ctx, store)
	if err != nil {
		return err
	}
	mine, err := ckpt.Take(to.FS, to.Dir, ckpt.Claim{Run: rand.Text(), Name: "checkpoint restore", Since: time.Now()}) // on line 1, unless a run has begun there since
	if err != nil {
		return err
	}
	w, err := ckpt.OpenWriter(to.FS, to.Dir, ckpt.WriterConfig{Layout: flat.Layout, Rule: m.Rule, Range: flat.Range, Line: mine.Line, Fence: 1, Run: mine.Run})
	if err != nil {
		return err
	}
	report, err := w.Save(ctx, ckpt.Snapshot{Step: m.Step, Load: flat.Load})
	if err != nil {
		return err
	}
	return ckpt.PublishRun(to.FS, to.Dir, &ckpt.RunManifest{
		Line: mine.Line, Step: m.Step, Fence: 1, Created: time.Now(), Model: m.Model, Seed: m.Seed, Rule: m.Rule, Tensors: m.Tensors,
		Notes: map[string]string{"restored_from": m.Name()},
	}, []string{report.File})
}
