package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// evaluating is the command that evaluates a checkpoint on the test set.
type evaluating struct {
	choice
	config, dataDir, device string
}

func evaluateCommand() *cobra.Command {
	e := &evaluating{}
	cmd := &cobra.Command{
		Use: "evaluate PATH", Short: "Evaluate a checkpoint, or a mean of some, on the test set", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Long: "Evaluate computes the loss of a checkpoint on the test set, and the accuracy if the model has one, with the settings of its\n" +
			"run: what the run would have recorded at that step. A program evaluates its own model. Nothing in PATH is changed.",
		Example: "  kintsugi checkpoint evaluate runs/mnist\n" +
			"  kintsugi checkpoint evaluate runs/mnist --step 500\n" +
			"  kintsugi checkpoint evaluate runs/mnist --average 5\n" +
			"  kintsugi checkpoint evaluate s3://models/mnist --config runs/mnist/config.yaml",
		RunE: func(cmd *cobra.Command, args []string) error { return e.command(cmd, args[0]) },
	}
	f := cmd.Flags()
	e.register(f)
	f.StringVar(&e.config, "config", "", "YAML file of settings (default: that of the run in PATH)")
	f.StringVar(&e.dataDir, "data-dir", "", "folder that holds the data set (default: as the run has)")
	f.StringVar(&e.device, "device", "", "where to compute, as for train (default: as the run has)")
	return cmd
}

func (e *evaluating) command(cmd *cobra.Command, path string) (err error) {
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	of, err := chosen(at, e.choice)
	if err != nil {
		return err
	}
	t, p, err := e.settings(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := of[0].Fits(p.Layout); err != nil { // that of any other checkpoint is the same
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	ev, err := p.Evaluator(&t.Settings)
	if err != nil {
		return err
	}
	if ev == nil {
		return fmt.Errorf("%w: %s has no evaluation: neither a test set nor a program that evaluates", kintsugi.ErrUsage, t.Model)
	}
	defer func() { err = errors.Join(err, ev.Close()) }()
	var params []float32
	of, err = reading(at, e.choice, of, func(of []*ckpt.RunManifest) (err error) {
		_, params, err = readParams(cmd.Context(), at, of)
		return err
	})
	if err != nil {
		return err
	}
	done := cli.Meanwhile(func(took time.Duration) {
		fmt.Fprintf(cmd.ErrOrStderr(), "kintsugi: still evaluating %s, after %v\n", whichSteps(of), took)
	})
	loss, accuracy, err := ev.Evaluate(cmd.Context(), params)
	done()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s on %s, %s%s", t.Model, t.Data, whichSteps(of), cmp.Or(p.Quality(loss), fmt.Sprintf(", test loss %.5g", loss)))
	if !math.IsNaN(accuracy) {
		fmt.Fprintf(cmd.OutOrStdout(), ", test accuracy %.4f", accuracy)
	}
	fmt.Fprintf(cmd.OutOrStdout(), ", %d examples\n", ev.Examples())
	return nil
}

// settings returns the settings of the run, and its model and data.
func (e *evaluating) settings(path string) (*train.Training, *job.Problem, error) {
	t := &train.Training{}
	t.Register(job.NewFlagSet("evaluate"))
	for flag, value := range map[string]string{"data-dir": e.dataDir, "device": e.device} {
		if value == "" {
			continue
		}
		if err := t.Flags.Set(flag, value); err != nil {
			return nil, nil, err
		}
	}
	if err := settingsOf(t, path, e.config, "say with --config which settings it has"); err != nil {
		return nil, nil, err
	}
	if err := t.Check(); err != nil {
		return nil, nil, err
	}
	if _, err := job.UseBLAS(&t.Settings); err != nil {
		return nil, nil, err
	}
	p, err := job.Describe(&t.Settings)
	if err != nil {
		return nil, nil, err
	}
	if err := p.Open(&t.Settings); err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	return t, p, nil
}
