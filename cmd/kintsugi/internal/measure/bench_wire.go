package measure

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

func benchWireCommand() *cobra.Command {
	cfg, sizes, frame, window, format, check := machine.WireConfig{}, []int(nil), 0, "", "", false
	cmd := &cobra.Command{
		Use: "wire", Short: "Compare sending gradients to servers with bare sockets and with copying memory", Args: cli.NoArgs,
		Example: "  kintsugi bench wire\n  kintsugi bench wire --sizes 64 --frame 512 --rounds 15 --format json\n  kintsugi bench wire --check\n  kintsugi bench wire --tls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			cfg.Sizes, cfg.Frame, cfg.Progress = nil, frame<<10, cmd.ErrOrStderr()
			for _, mib := range sizes {
				cfg.Sizes = append(cfg.Sizes, mib<<20)
			}
			var err error
			if cfg.Window, err = job.ParseWindow(window); err != nil {
				return err
			}
			if err := cfg.Check(); err != nil {
				return err
			}
			rows, err := machine.Wire(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, wireTable, wireLine); err != nil || !check {
				return err
			}
			return machine.CheckWire(rows)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&sizes, "sizes", []int{256}, "MiB of the gradient of each worker")
	f.IntVar(&frame, "frame", transport.FrameBytes>>10, "KiB of a frame")
	f.StringVar(&window, "window", job.WindowDefault, "bytes on their way on a stream of gRPC, as kintsugi train has them, or auto")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Servers, "servers", 2, "servers, each of which gets a part of every gradient")
	f.IntVar(&cfg.Rounds, "rounds", 9, "interleaved rounds")
	f.BoolVar(&cfg.TLS, "tls", false, "also push by mutual TLS, beside the same without")
	f.BoolVar(&check, "check", false, "fail if a goal is missed by more than a fifth; see docs/performance.md")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const wireTable = "OPERATION\tWIRE\tVARIANT\tMiB\tFRAME\tSECONDS (QUARTILES)\tGB/S\tBOUND\tFRACTION\tCPU-S A GB\tALLOCATIONS A FRAME\tBYTES"

// wireLine formats a row of bench wire.
func wireLine(r machine.WireRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%.3g (%.3g–%.3g)\t%.2f", r.Name, r.Device, r.Variant, 4*r.Elements>>20, r.Frame>>10,
		r.Seconds, r.SecondsLow, r.SecondsHigh, r.GBPerS)
	if r.BoundGBPerS > 0 {
		text += fmt.Sprintf("\t%.2f\t%.2f", r.BoundGBPerS, r.Fraction)
	} else {
		text += "\t\t"
	}
	text += fmt.Sprintf("\t%.2f\t%.1f\t%.0f", r.CPUPerGB, r.AllocsPerFrame, r.AllocatedPerFrame)
	_, benchfmt = measuredLine(r.Row)
	return text, benchfmt + fmt.Sprintf(" %.4f cpu-s/GB %.2f allocs/frame", r.CPUPerGB, r.AllocsPerFrame)
}
