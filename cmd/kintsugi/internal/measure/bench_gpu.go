package measure

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cuda"
)

// onGPU is command for a GPU. Unless flags say otherwise, it uses the sizes and numbers of
// gradients of docs/gpu.md.
func (b *benchKernels) onGPU(cmd *cobra.Command, ordinal int) (err error) {
	if b.goals {
		return fmt.Errorf("%w: --goals is for processors; on a GPU use --check", kintsugi.ErrUsage)
	}
	if !cmd.Flags().Changed("sizes") {
		b.sizes = []int{4096}
	}
	if b.quick {
		b.sizes = []int{256}
	}
	if !cmd.Flags().Changed("k") {
		b.k = []int{1, 4, 8}
	}
	b.threads = []int{1} // the GPU has its own threads
	common, err := b.measured(cmd)
	if err != nil {
		return err
	}
	if err := (job.GPU{Wanted: true, Ordinal: ordinal}).Check("--device", b.device); err != nil {
		return err
	}
	device, err := cuda.Open("", ordinal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	fmt.Fprintln(cmd.ErrOrStderr(), device)
	rig, err := device.NewRig()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.Close()) }() // before the device
	rows, err := machine.GPUKernels(cmd.Context(), machine.GPUKernelsConfig{
		Rig: rig, Device: device.Name(), Sizes: common.Sizes, K: common.K, Pairs: common.Pairs, AtLeast: common.AtLeast, Progress: common.Progress,
	})
	if err != nil {
		return err
	}
	if err := printRows(cmd.OutOrStdout(), b.format, rows, gpuTable, gpuLine); err != nil {
		return err
	}
	if b.check {
		return machine.CheckGPUKernels(rows)
	}
	return nil
}

const gpuTable = "OPERATION\tDEVICE\tVARIANT\tDTYPE\tK\tVALUES\tms (QUARTILES)\tGB/S\tCOPY\tOF A COPY\tGOAL"

// gpuLine formats a row of bench kernels on a GPU.
func gpuLine(r bench.Row) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%.3f (%.3f–%.3f)\t%.1f\t%.1f\t%.2f\t%s", r.Name, r.Device, r.Variant, r.DType, r.K, r.Elements,
		1e3*r.Seconds, 1e3*r.SecondsLow, 1e3*r.SecondsHigh, r.GBPerS, r.BoundGBPerS, r.Fraction, verdict(r))
	_, benchfmt = measuredLine(r)
	return text, benchfmt
}

// verdict says whether a row reaches its goal.
func verdict(r bench.Row) string {
	switch {
	case r.Goal == 0:
		return "–"
	case r.Fraction < r.Goal:
		return fmt.Sprintf("%.2f missed", r.Goal)
	}
	return fmt.Sprintf("%.2f ok", r.Goal)
}
