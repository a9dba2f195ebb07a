package checkpoint

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
)

// exporting is the command that writes the parameters of a checkpoint to a file.
type exporting struct {
	choice
	out   string
	state bool
}

func exportCommand() *cobra.Command {
	e := &exporting{}
	cmd := &cobra.Command{
		Use: "export PATH", Short: "Write the parameters of a checkpoint as safetensors or NPZ", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Example: "  kintsugi checkpoint export runs/mnist --out mnist.safetensors\n" +
			"  kintsugi checkpoint export runs/mnist --step 500 --out mnist.npz\n" +
			"  kintsugi checkpoint export runs/mnist --average 5 --out mean.safetensors",
		RunE: func(cmd *cobra.Command, args []string) error { return e.command(cmd, args[0]) },
	}
	e.register(cmd.Flags())
	cmd.Flags().StringVar(&e.out, "out", "", "file to write, which must not exist; its ending, .safetensors or .npz, says the format")
	cmd.Flags().BoolVar(&e.state, "state", false, "the optimizer's state too, as optimizer.0.NAME and optimizer.1.NAME")
	return cmd
}

func (e *exporting) command(cmd *cobra.Command, path string) error {
	write := export.Safetensors
	switch filepath.Ext(e.out) {
	case ".safetensors":
	case ".npz":
		write = export.NPZ
	default:
		return fmt.Errorf("%w: --out %q: name a file that ends in .safetensors or .npz", kintsugi.ErrUsage, e.out)
	}
	if e.state && e.average > 1 {
		return fmt.Errorf("%w: --state: there is no mean of the optimizer's state; leave it or --average away", kintsugi.ErrUsage)
	}
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	of, err := chosen(at, e.choice)
	if err != nil {
		return err
	}
	var tensors []export.Tensor
	of, err = reading(at, e.choice, of, func(of []*ckpt.RunManifest) (err error) {
		tensors, err = e.tensors(cmd.Context(), at, of)
		return err
	})
	if err != nil {
		return err
	}
	m := of[0]
	if _, err := os.Stat(e.out); err == nil {
		return fmt.Errorf("%w: --out %s exists", kintsugi.ErrUsage, e.out)
	}
	metadata := map[string]string{
		"format": "kintsugi", "model": m.Model, "step": strconv.FormatUint(uint64(m.Step), 10), "line": strconv.FormatUint(uint64(m.Line), 10),
		"seed": strconv.FormatUint(m.Seed, 10), "fingerprint": fmt.Sprintf("%016x", uint64(m.Fingerprint)),
	}
	if len(of) > 1 {
		metadata["mean_of_steps"] = stepsOf(of)
	}
	if err := record.WriteFile(e.out, func(w io.Writer) error { return write(w, tensors, metadata) }); err != nil {
		return fmt.Errorf("--out %s: %w", e.out, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d tensors of %s\n", e.out, len(tensors), whichSteps(of))
	return nil
}

// tensors reads the tensors that are to be written.
func (e *exporting) tensors(ctx context.Context, at job.Place, of []*ckpt.RunManifest) ([]export.Tensor, error) {
	if e.state {
		flat, err := readWhole(ctx, at, of[0])
		if err != nil {
			return nil, err
		}
		return exported(flat), nil
	}
	layout, params, err := readParams(ctx, at, of)
	if err != nil {
		return nil, err
	}
	return job.TensorsOf(layout, "", params), nil
}

// exported returns the tensors of a model and of its optimizer.
func exported(flat *ckpt.Flat) []export.Tensor {
	all := job.TensorsOf(flat.Layout, "", flat.Params)
	for i, values := range flat.State {
		if values != nil {
			all = append(all, job.TensorsOf(flat.Layout, fmt.Sprintf("optimizer.%d.", i), values)...)
		}
	}
	return all
}
