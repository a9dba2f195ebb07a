package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func checkpointRepairCommand() *cobra.Command {
	return &cobra.Command{
		Use: "repair PATH", Short: "Keep what is whole of damaged checkpoints; nothing is deleted", Args: oneArg("run folder, checkpoint folder or s3:// place"),
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
	report, err := ckpt.Repair(cmd.Context(), at.fs, at.dir, ckpt.RepairConfig{Now: time.Now(), Model: modelOf(path)})
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
	m, _, err := ckpt.Newest(at.fs, at.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "the newest whole checkpoint is of step %d\n", m.Step)
	return nil
}

// modelOf returns what the settings of a run say of its model; nil where there are none.
func modelOf(path string) *ckpt.RunManifest {
	t := &training{}
	t.register(newFlagSet("repair"))
	config := filepath.Join(path, configFile)
	if _, err := os.Stat(config); err != nil || loadFile(t.flags, config) != nil {
		return nil
	}
	p, err := describe(&t.settings)
	if err != nil {
		return nil // its data may not be here; it is only needed where every run manifest is damaged
	}
	return &ckpt.RunManifest{Model: t.Model, Seed: t.Seed, Tensors: p.layout.Tensors}
}
