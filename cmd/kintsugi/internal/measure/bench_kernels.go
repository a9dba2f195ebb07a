package measure

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// benchKernels are the flags of bench kernels.
type benchKernels struct {
	device, format string
	sizes          []int // MiB
	k, threads     []int
	pairs          int
	atLeast        time.Duration
	quick, check   bool
	goals          bool
}

func benchKernelsCommand() *cobra.Command {
	b := &benchKernels{}
	cmd := &cobra.Command{
		Use: "kernels", Short: "Compare the kernels with the memory of this machine, or of a GPU, and with summing in order of arrival", Args: cli.NoArgs,
		Example: "  kintsugi bench kernels\n  kintsugi bench kernels --device avx2 --sizes 256 --k 4 --threads 1 --format json\n  kintsugi bench kernels --check\n  kintsugi bench kernels --device cuda",
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.command(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&b.device, "device", "auto", "auto, or a device by name: host, avx2, avx512, neon, or a GPU: cuda, cuda:1; there --sizes are 4096 unless they are given, and --k 1,4,8")
	f.IntSliceVar(&b.k, "k", []int{2, 4, 8}, "gradients of a step")
	b.register(f)
	return cmd
}

// register registers the flags shared by all measurements in rounds.
func (b *benchKernels) register(f *pflag.FlagSet) {
	threads := []int{1}
	if n := job.Cores(); n > 1 {
		threads = append(threads, 2)
	}
	f.IntSliceVar(&b.sizes, "sizes", []int{1, 1024}, "MiB of all arrays of an operation: in the cache, and not")
	f.IntSliceVar(&b.threads, "threads", threads, "threads")
	f.IntVar(&b.pairs, "pairs", 20, "interleaved rounds")
	f.DurationVar(&b.atLeast, "at-least", 10*time.Millisecond, "length of one measurement")
	f.BoolVar(&b.quick, "quick", false, "a few seconds: less memory, one thread, few rounds")
	f.BoolVar(&b.check, "check", false, "fail if a goal is missed by more than a fifth; see docs/performance.md")
	f.BoolVar(&b.goals, "goals", false, "measure only what has a goal, and --check it")
	f.StringVar(&b.format, "format", "text", "text, json or benchfmt")
}

func (b *benchKernels) command(cmd *cobra.Command) error {
	if ordinal, ok := job.ParseGPU(b.device); ok {
		return b.onGPU(cmd, ordinal)
	}
	cfg, err := b.config(cmd)
	if err != nil {
		return err
	}
	rows, err := machine.Kernels(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if err := printRows(cmd.OutOrStdout(), b.format, rows, measuredTable, measuredLine); err != nil {
		return err
	}
	if b.check || b.goals {
		return machine.CheckKernels(rows)
	}
	return nil
}

func (b *benchKernels) config(cmd *cobra.Command) (machine.KernelsConfig, error) {
	if b.quick {
		b.sizes, b.threads = []int{1, 32}, []int{1}
	}
	cfg, err := b.measured(cmd)
	if err != nil || b.device == "auto" {
		return cfg, err
	}
	if cfg.Device, err = kernels.ByName(b.device); err != nil {
		return cfg, fmt.Errorf("%w: --device: %w", kintsugi.ErrUsage, err)
	}
	return cfg, nil
}

// measured returns the configuration from all flags except --device.
func (b *benchKernels) measured(cmd *cobra.Command) (machine.KernelsConfig, error) {
	cfg := machine.KernelsConfig{
		Device: kernels.Best(), K: b.k, Threads: b.threads, Pairs: b.pairs, AtLeast: b.atLeast, Goals: b.goals, Progress: cmd.ErrOrStderr(),
	}
	if b.quick {
		cfg.Pairs, cfg.AtLeast = 5, time.Millisecond
	}
	for _, mib := range b.sizes {
		cfg.Sizes = append(cfg.Sizes, mib<<20)
	}
	if err := checkFormat(b.format); err != nil {
		return cfg, err
	}
	return cfg, cfg.Check()
}

const measuredTable = "OPERATION\tDEVICE\tVARIANT\tDTYPE\tK\tTHREADS\tVALUES\tSECONDS (QUARTILES)\tGB/S\tBOUND\tFRACTION\tFASTER (QUARTILES)\tTHAN\tITS BYTES"

// gbPerS formats a rate. Disks and memory have some GB/s, stores on a network less than one.
func gbPerS(rate float64) string {
	if rate < 1 {
		return fmt.Sprintf("%.3f", rate)
	}
	return fmt.Sprintf("%.1f", rate)
}

// measuredLine formats a row of bench kernels, and of similar measurements.
func measuredLine(r bench.Row) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%d\t%.3g (%.3g–%.3g)\t%s", r.Name, r.Device, r.Variant, r.DType, r.K, r.Threads,
		r.Elements, r.Seconds, r.SecondsLow, r.SecondsHigh, gbPerS(r.GBPerS))
	benchfmt = fmt.Sprintf("%s/variant=%s/dtype=%s/k=%d/device=%s/threads=%d/values=%d 1 %.0f ns/op %.3f GB/s", benchName(r.Name),
		benchValue(r.Variant), benchValue(r.DType), r.K, r.Device, r.Threads, r.Elements, r.Seconds*1e9, r.GBPerS)
	if r.BoundGBPerS > 0 {
		text += fmt.Sprintf("\t%s\t%.2f", gbPerS(r.BoundGBPerS), r.Fraction)
		benchfmt += fmt.Sprintf(" %.4f of-bound", r.Fraction)
	} else {
		text += "\t\t"
	}
	if r.Versus != "" {
		text += fmt.Sprintf("\t%.2f (%.2f–%.2f)\t%s\t×%.2f", r.Ratio, r.RatioLow, r.RatioHigh, r.Versus, r.BytesRatio)
		benchfmt += fmt.Sprintf(" %.4f times-faster", r.Ratio)
	}
	return text, benchfmt
}
