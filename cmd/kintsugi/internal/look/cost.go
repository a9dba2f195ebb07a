package look

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// CostCommand returns the command that tells what runs have cost.
func CostCommand() *cobra.Command {
	price, format := "", ""
	cmd := &cobra.Command{
		Use: "cost RUN...", Short: "Report what runs cost: nodes, useful work, protection and failures",
		Example: "  kintsugi cost runs/mnist --price server=0.096/0.035,worker=0.526/0.158",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%w: name at least one run folder; see kintsugi cost --help", kintsugi.ErrUsage)
			}
			var runs []pricedRun
			for _, dir := range args {
				run, err := record.ReadOutline(dir)
				if len(args) > 1 && errors.Is(err, kintsugi.ErrUsage) && isFolder(dir) { // runs/* may also contain results of experiments
					fmt.Fprintf(cmd.ErrOrStderr(), "passed over, since it is no run: %s\n", dir)
					continue
				}
				if err != nil {
					return err
				}
				text := price
				if text == "" {
					text = run.Header.Prices
				}
				prices, ok, err := cost.Parse(text)
				if err != nil {
					return err
				}
				runs = append(runs, pricedRun{dir, run.Header.Recovery, run.Summary.FinalAccuracy, run.Bill(prices, ok)})
			}
			if len(runs) == 0 {
				return fmt.Errorf("%w: none of these %d folders is that of a run; name those that --out of train or monitor named", kintsugi.ErrUsage, len(args))
			}
			return writeCosts(cmd.OutOrStdout(), runs, format)
		},
	}
	cmd.Flags().StringVar(&price, "price", "", cost.Forms+" (default: what the run was started with)")
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	return cmd
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// pricedRun is one run with its bill.
type pricedRun struct {
	Run      string        `json:"run"`
	Recovery string        `json:"recovery"`
	Accuracy record.Number `json:"final_accuracy"`
	cost.Bill
}

func writeCosts(w io.Writer, runs []pricedRun, format string) error {
	switch format {
	case "json":
		text, err := json.MarshalIndent(runs, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	case "text":
		for i, r := range runs {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := writeCost(w, r); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%w: --format %q is unknown; use text or json", kintsugi.ErrUsage, format)
}

// writeCost writes one bill as a table.
func writeCost(w io.Writer, r pricedRun) error {
	fmt.Fprintf(w, "%s, recovery %s: %.1f s\n", r.Run, r.Recovery, r.WallSeconds)
	priced := r.OnDemand != nil
	fmt.Fprintf(w, "%-38s %12s %8s", "", "node-seconds", "of all")
	if priced {
		fmt.Fprintf(w, " %10s %10s", "on demand", "on spot")
	}
	fmt.Fprintln(w)
	for _, row := range r.Rows() {
		name := row.Name
		if row.Part {
			name = "  " + name
		}
		fmt.Fprintf(w, "%-38s %12.1f %6.1f %%", name, row.NodeSeconds, 100*row.Fraction)
		if priced && !row.Part {
			fmt.Fprintf(w, " %10s %10s", amount(row.OnDemand), amount(row.Spot))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "gradients: %d, of which steps that stayed counted %d (%s); workers busy %s\n",
		r.ComputedGradients, r.UsefulGradients, percentOr(r.UsefulFraction), percentOr(r.WorkerBusy))
	if c := r.CPUSeconds; c != nil {
		fmt.Fprintf(w, "processors: coordinator %.1f s, servers %.1f s, workers %.1f s\n", c.Coordinator, c.Server, c.Worker)
	}
	if priced {
		_, err := fmt.Fprintln(w, InMoney(&r.Bill))
		return err
	}
	return nil
}

// InMoney says in one line what a run cost. The bill must have prices.
func InMoney(b *cost.Bill) string {
	text := fmt.Sprintf("cost: %s on demand, %s on spot", amount(b.OnDemand.Total), amount(b.Spot.Total))
	if b.OnDemand.PerPoint != nil {
		text += fmt.Sprintf("; a point of accuracy %s and %s", amount(*b.OnDemand.PerPoint), amount(*b.Spot.PerPoint))
	}
	if b.OnDemand.PerThousand != nil {
		text += fmt.Sprintf("; 1000 useful gradients %s and %s", amount(*b.OnDemand.PerThousand), amount(*b.Spot.PerThousand))
	}
	return text
}

// amount formats an amount of money: small runs cost fractions of a cent.
func amount(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

func percentOr(x *float64) string {
	if x == nil {
		return "not known"
	}
	return fmt.Sprintf("%.1f %%", 100**x)
}
