package measure

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/worker"
)

func benchStepCommand() *cobra.Command {
	cfg, wires, format := machine.StepConfig{}, []string(nil), ""
	cmd := &cobra.Command{
		Use: "step", Short: "Compare a step of a large model with what its parts must cost", Args: cli.NoArgs,
		Example: "  kintsugi bench step\n  kintsugi bench step --values 10000000 --wires shm --steps 20 --format json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			cfg.Wires, cfg.Progress = nil, cmd.ErrOrStderr()
			for _, text := range wires {
				w, err := worker.ParseWire(text)
				if err != nil {
					return err
				}
				cfg.Wires = append(cfg.Wires, w)
			}
			if err := cfg.Check(); err != nil {
				return err
			}
			rows, err := machine.FullStep(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, stepTable, stepLine); err != nil || format != "text" {
				return err
			}
			for _, r := range rows {
				if r.Strip != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "\n%s: %s\n", r.Wire, r.Strip)
				}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "\n"+stepPeers)
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Values, "values", 100_000_000, "values of the model")
	f.IntVar(&cfg.Workers, "workers", 4, "workers, which compute nothing")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.StringSliceVar(&wires, "wires", []string{"grpc", "shm"}, "ways of gradients and parameters")
	f.IntVar(&cfg.Steps, "steps", 12, "measured steps of one run")
	f.IntVar(&cfg.Rounds, "rounds", 3, "interleaved runs over each wire")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// stepPeers is printed below the table: figures of other systems, which were not measured here.
const stepPeers = "For comparison, quoted and not measured here: ps-lite (BytePS's, ZeroMQ over loopback, two processors of the same kind) moves 0.46 to 0.53 GB/s\n" +
	"each way when it pushes and pulls, and adds nothing up."

const stepTable = "WIRE\tPART\tSECONDS (QUARTILES)\tBOUND\tTIMES THE BOUND\tCPU-S A STEP\tGB/S EACH WAY"

// stepLine formats a row of bench step.
func stepLine(r machine.StepRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%s\t%.3f (%.3f–%.3f)\t%.3f\t%.2f", r.Wire, r.Name, r.Seconds, r.SecondsLow, r.SecondsHigh, r.BoundSeconds, r.Over)
	benchfmt = fmt.Sprintf("BenchmarkStep/wire=%s/part=%s/values=%d/workers=%d/servers=%d 1 %.0f ns/op %.3f of-bound", r.Wire, benchValue(strings.ToLower(r.Name)),
		r.Values, r.Workers, r.Servers, r.Seconds*1e9, r.Over)
	if r.GBPerS > 0 {
		text += fmt.Sprintf("\t%.2f\t%.2f", r.CPUSeconds, r.GBPerS)
		benchfmt += fmt.Sprintf(" %.3f cpu-s/op", r.CPUSeconds)
	}
	return text, benchfmt
}
