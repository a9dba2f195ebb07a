package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func repairCommand() *cobra.Command {
	return &cobra.Command{
		Use: "repair PATH", Short: "Recover what is whole in damaged checkpoints; nothing is deleted", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Long: "Repair verifies every byte, moves what is damaged to the folder quarantine beside it, copies chunks that are whole out of damaged\n" +
			"files, writes manifests anew, and publishes each checkpoint whose chunks are all whole. The run must not be running.",
		Example: "  kintsugi checkpoint repair runs/mnist",
		RunE:    func(cmd *cobra.Command, args []string) error { return repairCheckpoints(cmd, args[0]) },
	}
}

func repairCheckpoints(cmd *cobra.Command, path string) error {
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	var model *ckpt.RunManifest
	run := runOf(path)
	if run != "" {
		release, err := record.Hold(run)
		if err != nil {
			return fmt.Errorf("repair %s: %w", at.Name, err)
		}
		defer release() // nothing was written to it
		model = modelOf(run)
	}
	report, err := ckpt.Repair(cmd.Context(), at.FS, at.Dir, ckpt.RepairConfig{Now: time.Now(), Model: model})
	w := cmd.OutOrStdout()
	for _, d := range report.Damage {
		fmt.Fprintf(w, "damaged: %v\n", d)
	}
	for _, f := range report.Quarantined {
		fmt.Fprintf(w, "moved to quarantine: %s\n", f)
	}
	for _, f := range report.Published {
		fmt.Fprintf(w, "published: %s\n", f)
	}
	fmt.Fprintf(w, "%d damaged places; %d chunks copied out of damaged files, %d lost\n", len(report.Damage), report.Salvaged, report.Lost)
	if err != nil {
		return err
	}
	m, _, err := ckpt.Newest(at.FS, at.Dir)
	switch {
	case errors.Is(err, ckpt.ErrNoCheckpoint):
		return fmt.Errorf("%w: %s", err, hopeless(run, report.Nameless))
	case err != nil:
		return err
	}
	fmt.Fprintf(w, "the newest whole checkpoint is of step %d\n", m.Step)
	return nil
}

// hopeless says why a repair has left no checkpoint, and what can still be done.
func hopeless(run string, nameless []kintsugi.Step) string {
	switch {
	case len(nameless) == 0:
		return "of no step every chunk is whole; bring back what is missing from a backup and repair again, or begin again with kintsugi rerun"
	case run == "":
		return fmt.Sprintf("every chunk of steps %d is whole, but no manifest is left that says of which tensors they are; repair the folder of the run, whose %s says it", nameless, train.ConfigFile)
	}
	return fmt.Sprintf("every chunk of steps %d is whole, but no manifest is left that says of which tensors they are, and %s describes another model, or one whose data are not here",
		nameless, filepath.Join(run, train.ConfigFile))
}

// runOf returns the folder of the run that a path names, or whose checkpoints it names; "" if it is
// neither.
func runOf(path string) string {
	if job.IsURL(path) || train.Absolute(&path) != nil {
		return ""
	}
	if filepath.Base(path) == record.Checkpoints {
		path = filepath.Dir(path)
	}
	if _, err := os.Stat(filepath.Join(path, train.ConfigFile)); err != nil {
		return ""
	}
	return path
}

// modelOf returns the model according to the settings of a run, or nil if it cannot be determined.
func modelOf(run string) *ckpt.RunManifest {
	t := &train.Training{}
	t.Register(job.NewFlagSet("repair"))
	if job.LoadFile(t.Flags, filepath.Join(run, train.ConfigFile)) != nil {
		return nil
	}
	p, err := job.Describe(&t.Settings)
	if err != nil {
		return nil // its data may not be on this machine; the model is needed only if every run manifest is damaged
	}
	return &ckpt.RunManifest{Model: t.Model, Seed: t.Seed, Tensors: p.Layout.Tensors}
}
