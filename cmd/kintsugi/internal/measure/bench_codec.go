package measure

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

func benchCodecCommand() *cobra.Command {
	b, specs := &benchKernels{k: []int{1}, device: "auto"}, []string(nil)
	cmd := &cobra.Command{
		Use: "codec", Short: "Compare encoding, decoding and checksums with the memory of this machine", Args: cli.NoArgs,
		Example: "  kintsugi bench codec\n  kintsugi bench codec --codecs int8,topk:0.01 --sizes 1 --threads 1 --format json\n  kintsugi bench codec --check",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := b.config(cmd)
			if err != nil {
				return err
			}
			var codecs []compress.Codec
			for _, spec := range specs {
				c, err := compress.Parse(spec)
				if err != nil {
					return err
				}
				codecs = append(codecs, c)
			}
			rows, err := machine.CodecSpeed(cmd.Context(), cfg, codecs)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), b.format, rows, codecTable, codecLine); err != nil || !b.check && !b.goals {
				return err
			}
			return machine.CheckCodecs(rows)
		},
	}
	b.register(cmd.Flags())
	cmd.Flags().StringSliceVar(&specs, "codecs", []string{"fp32", "bf16", "fp16", "int8", "int8:stochastic", "sign", "topk:0.001", "topk:0.01", "topk:0.1", "powersgd:2"},
		"codecs to measure; a lossless stage is not measured")
	return cmd
}

const codecTable = "CODEC\tOPERATION\tVARIANT\tTHREADS\tVALUES\tBYTES A VALUE\tSECONDS (QUARTILES)\tGRADIENT GB/S\tGB/S\tBOUND\tFRACTION\tFASTER (QUARTILES)"

func codecLine(r machine.CodecRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%.4f\t%.3g (%.3g–%.3g)\t%.1f\t%.1f\t%.1f\t%.2f", r.DType, r.Name, r.Variant, r.Threads, r.Elements,
		r.BytesPerValue, r.Seconds, r.SecondsLow, r.SecondsHigh, r.GradientGBPerS, r.GBPerS, r.BoundGBPerS, r.Fraction)
	if r.Versus != "" {
		text += fmt.Sprintf("\t%.2f (%.2f–%.2f)", r.Ratio, r.RatioLow, r.RatioHigh)
	}
	_, benchfmt = measuredLine(r.Row)
	return text, benchfmt + fmt.Sprintf(" %.3f gradient-GB/s %.5f bytes/value", r.GradientGBPerS, r.BytesPerValue)
}
