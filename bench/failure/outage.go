package failure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what should workers do while servers are away for twenty seconds? They can wait, or go
// on with their current parameters, and there are several rules to apply the gradients they have
// kept. The claims that could be false: at equal counted pushes, stateless is at most half a point
// below the undisturbed run; and after equal time it is not below a checkpoint.

// OutageTable returns the result of each rule, the best first, by the accuracy after equal time.
// The last table says which rule is best.
func OutageTable(rows []Row) (tables []page.Table) {
	for _, group := range grouped(rows) {
		t := page.Table{
			Title: groupTitle(group[0]) + ": outages, and what workers do in them",
			Header: []string{"KILLS", "RULE", "BEFORE → AFTER", "AWAY s", "COMPUTED MEANWHILE", "FINAL ± SD", "OF UNDISTURBED, EQUAL PUSHES ± SE", "OF CHECKPOINT, EQUAL SECONDS ± SE",
				"SECONDS", "≥ UNDISTURBED − 0.5", "≥ CHECKPOINT", "SEEDS"},
		}
		for _, r := range ranked(group) {
			t.Lines = append(t.Lines, []string{fmt.Sprint(r.Kills), r.Preset, arrows(r.Before, r.After), figures("%.1f", r.Gap), figures("%.0f", r.Pending),
				plusMinus("%.3f", r.Final, r.Deviation), plusMinus("%+.2f", r.OfUndisturbed, r.OfUndisturbedError), plusMinus("%+.2f", r.OfCheckpoint, r.OfCheckpointError),
				fmt.Sprintf("%.0f", r.Seconds), atLeast(r.OfUndisturbed, -0.5), atLeast(r.OfCheckpoint, 0), fmt.Sprint(r.Seeds)})
		}
		tables = append(tables, t)
	}
	return append(tables, verdicts(rows))
}

// ranked sorts rows by their number of kills, and then by how far they are above the checkpoint.
func ranked(rows []Row) []Row {
	rows = slices.Clone(rows)
	height := func(r Row) record.Number {
		if r.OfCheckpoint.Known() {
			return r.OfCheckpoint
		}
		return 0 // the checkpoint itself
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch {
		case a.Kills != b.Kills:
			return a.Kills - b.Kills
		case height(a) > height(b):
			return -1
		case height(a) < height(b):
			return 1
		}
		return 0
	})
	return rows
}

// verdicts says which rule is best after equal time and at equal counted pushes, and how far it is
// above the next one.
func verdicts(rows []Row) page.Table {
	t := page.Table{Title: "Which rule is best, and by how much", Header: []string{"MODEL", "WORKERS", "KILLS", "COMPARED", "BEST", "POINTS ABOVE", "THE NEXT", "POINTS ABOVE IT ± SE", "MORE THAN NOISE"}}
	for _, way := range []struct {
		what, above string
		height      func(r Row) record.Number
		by          func(p Point) float64
	}{
		{"after equal time", "checkpoint", func(r Row) record.Number { return r.OfCheckpoint }, func(p Point) float64 { return p.Seconds }},
		{"at equal counted pushes", "undisturbed", func(r Row) record.Number { return r.OfUndisturbed }, func(p Point) float64 { return float64(p.Counted) }},
	} {
		for _, group := range grouped(rows) {
			for _, kills := range []int{1, 2} {
				list := slices.DeleteFunc(slices.Clone(group), func(r Row) bool { return r.Kills != kills || !way.height(r).Known() || r.reference() })
				if len(list) < 2 {
					continue
				}
				slices.SortStableFunc(list, func(a, b Row) int { return cmp.Compare(way.height(b), way.height(a)) })
				best, next := &list[0], &list[1]
				points, deviation := best.above(next, way.by)
				t.Lines = append(t.Lines, []string{best.Model, fmt.Sprint(best.Workers), fmt.Sprint(kills), way.what, best.Preset,
					fmt.Sprintf("%+.2f of %s", float64(way.height(*best)), way.above), next.Preset, plusMinus("%+.2f", points, deviation), clearly(points, deviation)})
			}
		}
	}
	return t
}

// reference reports whether the row is not a rule, but a reference for the rules.
func (r *Row) reference() bool { return strings.HasPrefix(r.Preset, "checkpoint") }

// clearly says whether a difference is more than twice its standard error.
func clearly(points, deviation record.Number) string {
	switch {
	case !deviation.Known():
		return "one seed: not known"
	case float64(points) > 2*float64(deviation):
		return "yes"
	}
	return "no"
}

func atLeast(v record.Number, bound float64) string {
	switch {
	case !v.Known():
		return ""
	case float64(v) >= bound:
		return "yes"
	}
	return "no"
}
