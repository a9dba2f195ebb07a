package failure

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Tables returns the output of reproduce failure: for each model and number of workers, the
// effects of kills and the costs of the runs; then a comparison with the paper.
func Tables(rows []Row) (tables []page.Table) {
	for _, group := range grouped(rows) {
		tables = append(tables, accuracyTable(group), effortTable(group))
	}
	return append(tables, paperTable(rows))
}

// grouped returns the rows of each model and number of workers.
func grouped(rows []Row) (groups [][]Row) {
	for len(rows) > 0 {
		same := func(r Row) bool { return r.Model == rows[0].Model && r.Workers == rows[0].Workers }
		groups = append(groups, slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !same(r) }))
		rows = slices.DeleteFunc(slices.Clone(rows), same)
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b Row) int { return a.Kills - b.Kills })
	}
	return groups
}

func accuracyTable(rows []Row) page.Table {
	t := page.Table{
		Title: groupTitle(rows[0]) + ": accuracy",
		Header: []string{"KILLS", "PRESET", "BEFORE → AFTER", "AWAY s", "LOST STEPS", "STAYS ≥ .6 s", "≥ .7 s", "FINAL ± SD", "OF UNDISTURBED ± SE", "OF CHECKPOINT ± SE", "SEEDS",
			"PAPER: BEFORE → AFTER", "AWAY s", "FINAL"},
	}
	for _, r := range rows {
		line := []string{fmt.Sprint(r.Kills), r.Preset, arrows(r.Before, r.After), figures("%.1f", r.Gap), fmt.Sprintf("%.0f", r.Redone),
			fmt.Sprintf("%.0f", r.Stays60), fmt.Sprintf("%.0f", r.Stays70), plusMinus("%.3f", r.Final, r.Deviation),
			plusMinus("%+.1f", r.OfUndisturbed, r.OfUndisturbedError), plusMinus("%+.1f", r.OfCheckpoint, r.OfCheckpointError), fmt.Sprint(r.Seeds)}
		if p := r.Paper; p != nil {
			line = append(line, arrows(known64(p.Before), known64(p.After)), figures("%.0f", known64(p.Gap)), fmt.Sprintf("%.3f", p.Final))
		} else {
			line = append(line, "", "", "")
		}
		t.Lines = append(t.Lines, line)
	}
	return t
}

func effortTable(rows []Row) page.Table {
	t := page.Table{
		Title: groupTitle(rows[0]) + ": effort",
		Header: []string{"KILLS", "PRESET", "SECONDS", "GRADIENTS", "IN OUTAGES", "USEFUL", "BUSY", "BUSY IN OUTAGES", "SERVERS MB", "WORKERS MB", "NODE-SECONDS", "FOR A POINT",
			"STEADY TAX", "FAILURE TAX", "CPU s", "MONEY", "A POINT",
			"PAPER: GRADIENTS", "IN OUTAGES", "BUSY", "STORE MB"},
	}
	none := func(v float64, format string) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf(format, v)
	}
	for _, r := range rows {
		line := []string{fmt.Sprint(r.Kills), r.Preset, fmt.Sprintf("%.0f", r.Seconds), fmt.Sprintf("%.0f", r.Gradients), figures("%.0f", r.Pending), fmt.Sprintf("%.2f", r.Useful),
			fmt.Sprintf("%.2f", r.Busy), fmt.Sprintf("%.2f", r.BusyOutage), fmt.Sprintf("%.0f", r.ServerMB), fmt.Sprintf("%.0f", r.WorkerMB), fmt.Sprintf("%.0f", r.NodeSeconds), fmt.Sprintf("%.2f", r.PerPoint),
			fmt.Sprintf("%.3f", r.SteadyTax), fmt.Sprintf("%.3f", r.FailureTax), fmt.Sprintf("%.0f", r.CPUSeconds), fmt.Sprintf("%.5f", r.Money), fmt.Sprintf("%.7f", r.MoneyPoint)}
		if p := r.Paper; p != nil {
			line = append(line, none(float64(p.Gradients), "%.0f"), none(p.Pending, "%.0f"), none(p.Busy, "%.2f"), none(p.MB, "%.0f"))
		} else {
			line = append(line, "", "", "", "")
		}
		t.Lines = append(t.Lines, line)
	}
	return t
}

func groupTitle(r Row) string {
	network := "without a ReLU on the logits"
	if r.Model == "cnn:relu-logits" {
		network = "with a ReLU on the logits, gradients of workers summed"
	}
	if r.Workers == 1 {
		return fmt.Sprintf("%s (%s), one worker", r.Model, network)
	}
	return fmt.Sprintf("%s (%s), %d workers", r.Model, network, r.Workers)
}

// paperTable compares the paper's statements with the results here, with as many workers as in the
// paper, or the fewest there are.
func paperTable(rows []Row) page.Table {
	t := page.Table{Title: "What the paper says, and what was measured", Header: []string{"", "THE PAPER"}}
	var models []string
	for _, r := range rows {
		if !slices.Contains(models, r.Model) {
			models = append(models, r.Model)
			t.Header = append(t.Header, strings.ToUpper(r.Model))
		}
	}
	for _, c := range claims {
		line := []string{c.what, c.paper}
		for _, m := range models {
			fewest := math.MaxInt
			for _, r := range rows {
				fewest = min(fewest, r.Workers)
			}
			line = append(line, c.measured(slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Model != m || r.Workers != fewest })))
		}
		t.Lines = append(t.Lines, line)
	}
	return t
}

// claims are the claims of the paper, and how to check them with the rows.
var claims = []struct {
	what, paper string
	measured    func(rows []Row) string
}{
	{"accuracy at the end, all presets, one and two kills", ".665 to .766", func(rows []Row) string {
		return between("%.3f", rows, disturbed, func(r Row) []record.Number { return []record.Number{r.Final} })
	}},
	{"what stateless gains in an outage, points", "+5 to +15", func(rows []Row) string {
		return "summed " + change(rows, "stateless:paper/async") + ", by default " + change(rows, "stateless/async")
	}},
	{"what a checkpoint loses, points", "−4 to −9", func(rows []Row) string {
		return change(rows, "checkpoint") + ", async " + change(rows, "checkpoint/async")
	}},
	{"what it loses where the restore is missing", "−23 to −28", func(rows []Row) string {
		return first(rows, "checkpoint:shipped") + ", async " + first(rows, "checkpoint:shipped/async")
	}},
	{"seconds until a chain goes on", "10 to 14", func(rows []Row) string {
		return between("%.2f", rows, func(r Row) bool { return strings.HasPrefix(r.Preset, "chain") && disturbed(r) }, func(r Row) []record.Number { return r.Gap })
	}},
	{"workers busy in an outage", "stateless all the time, others never", func(rows []Row) string {
		busy := func(r Row) []record.Number { return []record.Number{r.BusyOutage} }
		return between("%.2f", rows, named("stateless/async"), busy) + ", checkpoint " + between("%.2f", rows, named("checkpoint/async"), busy)
	}},
	{"gradients of stateless to those of a checkpoint", "4.9 to 5.5 times", func(rows []Row) string {
		return quotients(rows, func(r Row) record.Number { return r.Gradients })
	}},
	{"memory of its store to that of a checkpoint", "9 times (372 and 41 MB)", func(rows []Row) string {
		return quotients(rows, func(r Row) record.Number { return r.ServerMB }) + ", of workers " + quotients(rows, func(r Row) record.Number { return r.WorkerMB })
	}},
	{"node-seconds for a point of accuracy, to those of a checkpoint", "“similar cost”, not measured", func(rows []Row) string {
		return quotients(rows, func(r Row) record.Number { return r.PerPoint })
	}},
}

func disturbed(r Row) bool { return r.Kills > 0 }

func named(preset string) func(Row) bool {
	return func(r Row) bool { return r.Preset == preset && disturbed(r) }
}

// between formats the smallest and the largest value of some rows.
func between(format string, rows []Row, which func(Row) bool, of func(Row) []record.Number) string {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		if which(r) {
			for _, v := range of(r) {
				if v.Known() {
					lo, hi = min(lo, float64(v)), max(hi, float64(v))
				}
			}
		}
	}
	if lo > hi {
		return "–"
	}
	a, b := fmt.Sprintf(format, lo), fmt.Sprintf(format, hi)
	if a == b {
		return a
	}
	return a + " to " + b
}

// change formats the range of a preset's change over its kills, in points.
func change(rows []Row, preset string) string {
	return between("%+.1f", rows, named(preset), func(r Row) (points []record.Number) {
		for k := range r.Before {
			points = append(points, 100*(r.After[k]-r.Before[k]))
		}
		return points
	})
}

// first is change for the first of two kills.
func first(rows []Row, preset string) string {
	return between("%+.1f", rows, named(preset), func(r Row) []record.Number { return []record.Number{100 * (r.After[0] - r.Before[0])} })
}

// quotients formats the range of a value of stateless/async over that of checkpoint/async, by the
// number of kills.
func quotients(rows []Row, of func(Row) record.Number) string {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, a := range rows {
		for _, b := range rows {
			if a.Preset == "stateless/async" && b.Preset == "checkpoint/async" && a.Kills == b.Kills && disturbed(a) {
				if q := float64(of(a) / of(b)); !math.IsNaN(q) {
					lo, hi = min(lo, q), max(hi, q)
				}
			}
		}
	}
	if lo > hi {
		return "–"
	}
	if a, b := fmt.Sprintf("%.2f", lo), fmt.Sprintf("%.2f", hi); a != b {
		return a + " to " + b + " times"
	}
	return fmt.Sprintf("%.2f times", lo)
}

// figures formats a list of numbers; – stands for unknown ones.
func figures(format string, list []record.Number) string {
	var words []string
	for _, v := range list {
		words = append(words, fmt.Sprintf(format, v))
	}
	return strings.Join(words, ", ")
}

func plusMinus(format string, v, deviation record.Number) string {
	text := fmt.Sprintf(format, v)
	if deviation.Known() {
		text += " ± " + strings.TrimPrefix(fmt.Sprintf(strings.ReplaceAll(format, "+", ""), float64(deviation)), "+")
	}
	return text
}

// arrows formats the accuracies before and after each kill.
func arrows(before, after []record.Number) string {
	var words []string
	for k := range before {
		words = append(words, figures("%.3f", before[k:k+1])+" → "+figures("%.3f", after[k:k+1]))
	}
	return strings.Join(words, ", ")
}

func known64(list []float64) (out []record.Number) {
	for _, v := range list {
		out = append(out, record.Number(v))
	}
	return out
}

// Benchfmt returns a row, with the given name, in the format of Go benchmarks.
func (r Row) Benchfmt(name string) string {
	away := 0.0
	for _, g := range r.Gap {
		away += float64(g)
	}
	return fmt.Sprintf("%s %d %.4f final-accuracy %.2f s-away %.0f node-s", name, r.Seeds, float64(r.Final), away, float64(r.NodeSeconds))
}
