package checkpoint

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show PATH", Short: "Show how old the saved chunks are, and how far they move, as heat maps", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Long: "Show draws each tensor as its chunks, one character each. Age is how many steps a chunk was saved before the newest save of any;\n" +
			"what a loss of its shard would take back. Movement is the distance between its newest saved value and the one before, per byte:\n" +
			"what --recovery scar saves first. Colours where the output is a terminal; NO_COLOR=1 turns them off.",
		Example: "  kintsugi checkpoint show runs/mnist",
		RunE:    func(cmd *cobra.Command, args []string) error { return showCheckpoint(cmd, args[0]) },
	}
}

func showCheckpoint(cmd *cobra.Command, path string) error {
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	m, _, err := ckpt.Newest(at.FS, at.Dir)
	if err != nil {
		return err
	}
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		return err
	}
	states, skipped, err := ckpt.Survey(cmd.Context(), at.FS, at.Dir, layout, kernels.Best().SquaredDistance)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: newest full checkpoint step %d on line %d, %d shards\n", at.Name, m.Step, m.Line, len(m.Shards))
	newest, bytes := kintsugi.Step(0), int64(0)
	for _, s := range states {
		newest = max(newest, s.Step)
		bytes += s.Bytes
	}
	fmt.Fprintf(w, "%d chunks, %d bytes; the newest value of any is of step %d\n", len(states), bytes, newest)
	for _, err := range skipped {
		fmt.Fprintf(w, "passed over: %v\n", err)
	}
	h := heat{w: w, layout: layout, colour: cmd.OutOrStdout() == os.Stdout && term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""}
	ages, moves := make([]float64, len(states)), make([]float64, len(states))
	for i, s := range states {
		ages[i], moves[i] = float64(newest-s.Step), math.NaN()
		if s.Bytes == 0 {
			ages[i] = math.NaN()
		} else if s.Before != nil {
			moves[i] = s.Moved / float64(s.Bytes)
		}
	}
	h.draw("age in steps", ages)
	for i, v := range moves {
		moves[i] = math.Log10(max(v, 1e-30)) // the values span many powers of ten
	}
	h.draw("movement between the two newest values, power of ten of the squared distance per byte", moves)
	return nil
}

// heat draws one number for each chunk.
type heat struct {
	w      io.Writer
	layout *kintsugi.Layout
	colour bool
}

const (
	levels    = " .:-=+*#%@" // from the smallest to the largest value
	heatWidth = 64
)

// draw draws the tensors one below the other. NaN means unknown, and is drawn as a question mark.
func (h *heat) draw(what string, values []float64) {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	fmt.Fprintf(h.w, "\n%s\n", what)
	if len(known) == 0 {
		fmt.Fprintln(h.w, "  unknown: no chunk has two saved values")
		return
	}
	least, most := slices.Min(known), slices.Max(known)
	fmt.Fprintf(h.w, "  %s\n", h.legend(least, most))
	width := 0
	for _, t := range h.layout.Tensors {
		width = max(width, len(t.Name))
	}
	for at := 0; at < len(values); {
		tensor := h.layout.Chunks[at].Tensor
		end := at
		for end < len(values) && h.layout.Chunks[end].Tensor == tensor {
			end++
		}
		name := h.layout.Tensors[tensor].Name
		for ; at < end; at += min(heatWidth, end-at) {
			fmt.Fprintf(h.w, "  %-*s |%s|\n", width, name, h.row(values[at:min(at+heatWidth, end)], least, most))
			name = ""
		}
	}
}

// level returns the index of the level for a value. If all values are equal, it is the lowest.
func level(v, least, most float64) int {
	if !(most > least) {
		return 0
	}
	return min(len(levels)-1, int((v-least)/(most-least)*float64(len(levels))))
}

func (h *heat) row(values []float64, least, most float64) string {
	var b strings.Builder
	for _, v := range values {
		if math.IsNaN(v) {
			b.WriteByte('?')
			continue
		}
		b.WriteString(h.cell(level(v, least, most)))
	}
	return b.String()
}

// cell returns a level as a character, or as a blank on a colour from blue to red.
func (h *heat) cell(l int) string {
	if !h.colour {
		return levels[l : l+1]
	}
	ramp := [len(levels)]int{17, 19, 25, 31, 36, 72, 143, 178, 202, 196} // of the 256 terminal colours
	return fmt.Sprintf("\x1b[48;5;%dm \x1b[0m", ramp[l])
}

func (h *heat) legend(least, most float64) string {
	var b strings.Builder
	for l := range len(levels) {
		b.WriteString(h.cell(l))
	}
	return fmt.Sprintf("%.4g [%s] %.4g, ? unknown", least, b.String(), most)
}
