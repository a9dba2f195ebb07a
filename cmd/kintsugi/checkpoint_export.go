package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
)

// newestStep stands for the newest whole checkpoint.
const newestStep = -1

// choose returns the newest whole checkpoint of a step, or of any step.
func (p place) choose(step int64) (*ckpt.RunManifest, error) {
	if step == newestStep {
		m, _, err := ckpt.Newest(p.fs, p.dir)
		return m, err
	}
	if step < 0 {
		return nil, fmt.Errorf("%w: --step %d: no step is negative; leave it away for the newest checkpoint", kintsugi.ErrUsage, step)
	}
	names, err := ckpt.List(p.fs, p.dir)
	if err != nil {
		return nil, err
	}
	steps := make([]string, 0, len(names))
	for _, name := range names {
		m, err := ckpt.Read(p.fs, p.dir, name)
		switch {
		case errors.Is(err, kintsugi.ErrCorrupt):
			continue
		case err != nil:
			return nil, err
		case m.Step == kintsugi.Step(step):
			return m, nil
		}
		steps = append(steps, strconv.FormatUint(uint64(m.Step), 10))
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%s: %w", p.name, ckpt.ErrNoCheckpoint)
	}
	return nil, fmt.Errorf("%w: --step %d: %s has whole checkpoints of steps %s", kintsugi.ErrUsage, step, p.name, strings.Join(steps, ", "))
}

// whole reads a whole checkpoint into memory.
func (p place) whole(cmd *cobra.Command, m *ckpt.RunManifest) (*ckpt.Flat, error) {
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		return nil, err
	}
	flat, err := ckpt.NewFlat(layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, m.Rule)
	if err != nil {
		return nil, err
	}
	return flat, ckpt.Restore(cmd.Context(), p.fs, p.dir, m, layout, flat.Range, flat.Place)
}

func checkpointExportCommand() *cobra.Command {
	out, step, state := "", int64(newestStep), false
	cmd := &cobra.Command{
		Use: "export PATH", Short: "Write the parameters of a checkpoint as safetensors or NPZ", Args: oneArg("run folder, checkpoint folder or s3:// place"),
		Example: "  kintsugi checkpoint export runs/mnist --out mnist.safetensors\n  kintsugi checkpoint export runs/mnist --step 500 --out mnist.npz",
		RunE:    func(cmd *cobra.Command, args []string) error { return exportCheckpoint(cmd, args[0], out, step, state) },
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write, which must not exist; its ending, .safetensors or .npz, says the format")
	cmd.Flags().Int64Var(&step, "step", step, "step of the checkpoint; -1: the newest that is whole")
	cmd.Flags().BoolVar(&state, "state", false, "the optimizer's state too, as optimizer.0.NAME and optimizer.1.NAME")
	return cmd
}

func exportCheckpoint(cmd *cobra.Command, path, out string, step int64, state bool) error {
	write := export.Safetensors
	switch filepath.Ext(out) {
	case ".safetensors":
	case ".npz":
		write = export.NPZ
	default:
		return fmt.Errorf("%w: --out %q: name a file that ends in .safetensors or .npz", kintsugi.ErrUsage, out)
	}
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	m, err := at.choose(step)
	if err != nil {
		return err
	}
	flat, err := at.whole(cmd, m)
	if err != nil {
		return err
	}
	if _, err := os.Stat(out); err == nil {
		return fmt.Errorf("%w: --out %s exists", kintsugi.ErrUsage, out)
	}
	tensors := exported(flat, state)
	metadata := map[string]string{
		"format": "kintsugi", "model": m.Model, "step": strconv.FormatUint(uint64(m.Step), 10), "line": strconv.FormatUint(uint64(m.Line), 10),
		"seed": strconv.FormatUint(m.Seed, 10), "fingerprint": fmt.Sprintf("%016x", uint64(m.Fingerprint)),
	}
	if err := record.WriteFile(out, func(w io.Writer) error { return write(w, tensors, metadata) }); err != nil {
		return fmt.Errorf("--out %s: %w", out, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d tensors of step %d\n", out, len(tensors), m.Step)
	return nil
}

// exported returns the tensors of a model, and with state those of its optimizer.
func exported(flat *ckpt.Flat, state bool) []export.Tensor {
	all := tensorsOf(flat.Layout, "", flat.Params)
	for i, values := range flat.State {
		if state && values != nil {
			all = append(all, tensorsOf(flat.Layout, fmt.Sprintf("optimizer.%d.", i), values)...)
		}
	}
	return all
}

// tensorsOf returns the tensors of a model with the given values, which are not copied.
func tensorsOf(l *kintsugi.Layout, prefix string, values []float32) []export.Tensor {
	all := make([]export.Tensor, 0, len(l.Tensors))
	for _, t := range l.Tensors {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		all = append(all, export.Tensor{Name: prefix + t.Name, Shape: t.Shape, Values: values[:n]})
		values = values[n:]
	}
	return all
}
