package look

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/launch/report"
	"github.com/kintsugi-ml/kintsugi/internal/launch/tensorboard"
)

// ReportCommand returns the command that draws the pages of runs.
func ReportCommand() *cobra.Command {
	out, figures := "", false
	cmd := &cobra.Command{
		Use: "report DIR...", Short: "Draw the report of a run anew from its events, or compare runs",
		Long: "Report draws the report of a run anew from its events, into the run's folder or the file of --out. For several runs it draws one page that\n" +
			"compares them: the settings in which they differ, their results, and their losses over steps and over time.",
		Example: "  kintsugi report runs/mnist\n  kintsugi report runs/mnist --tensorboard\n  kintsugi report runs/fp32 runs/int8 runs/topk --out codecs.html",
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := drawReport(args, out)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), page)
			if !figures {
				return nil
			}
			for _, dir := range args {
				path, err := tensorboard.Write(dir)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file for the page (default report.html in the run's folder, or compare.html in this one for several runs)")
	cmd.Flags().BoolVar(&figures, "tensorboard", false, "also write the figures of each run to its folder for TensorBoard, as train's --tensorboard does during the run")
	return cmd
}

// drawReport draws the page of the runs in the given folders, and returns its path.
func drawReport(dirs []string, out string) (string, error) {
	switch n := len(dirs); {
	case n == 0:
		return "", fmt.Errorf("%w: name the run folder, or several to compare", kintsugi.ErrUsage)
	case n > report.MostCompared:
		return "", fmt.Errorf("%w: %d runs: one page compares at most %d", kintsugi.ErrUsage, n, report.MostCompared)
	case n == 1 && out == "":
		return report.Draw(dirs[0])
	case out == "":
		out = "compare.html"
	}
	var runs []*record.Run
	for _, dir := range dirs {
		run, err := record.ReadOutline(dir)
		if err != nil {
			return "", err
		}
		runs = append(runs, run)
	}
	err := record.WriteFile(out, func(w io.Writer) error {
		if len(runs) == 1 {
			return report.Write(w, runs[0])
		}
		return report.Compare(w, runs)
	})
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", out, err)
	}
	return out, nil
}
