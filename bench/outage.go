package bench

import (
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what should workers do while servers are away for twenty seconds? They may wait, or go on with the parameters that they have, and
// what they have kept can be applied by several rules. The claims that could be false: at equal counted pushes stateless is at most half a point below
// the undisturbed run, and after equal time it is not below a checkpoint.

// OutageTable says what each rule has made of outages, the best first; what it is judged by is the accuracy after equal time.
func OutageTable(rows []FailureRow) (tables []Table) {
	for _, group := range failureGroups(rows) {
		t := Table{
			Title: groupTitle(group[0]) + ": outages, and what workers do in them",
			Header: []string{"KILLS", "RULE", "BEFORE → AFTER", "AWAY s", "COMPUTED MEANWHILE", "FINAL ± SD", "OF UNDISTURBED, EQUAL PUSHES ± SE", "OF CHECKPOINT, EQUAL SECONDS ± SE",
				"SECONDS", "≥ UNDISTURBED − 0.5", "≥ CHECKPOINT", "SEEDS"},
		}
		for _, r := range ranked(group) {
			t.Lines = append(t.Lines, []string{fmt.Sprint(r.Kills), r.Preset, arrows(r.Before, r.After), figures("%.1f", r.Gap), figures("%.0f", r.Pending),
				plusMinus("%.3f", r.Final, r.Deviation), plusMinus("%+.2f", r.OfUndisturbed, r.OfUndisturbedError), plusMinus("%+.2f", r.OfCheckpoint, r.OfCheckpointError),
				figures("%.0f", []record.Number{r.Seconds}), atLeast(r.OfUndisturbed, -0.5), atLeast(r.OfCheckpoint, 0), fmt.Sprint(r.Seeds)})
		}
		tables = append(tables, t)
	}
	return tables
}

// ranked returns rows by their number of kills, and those with as many by how far they are above the checkpoint.
func ranked(rows []FailureRow) []FailureRow {
	rows = slices.Clone(rows)
	height := func(r FailureRow) record.Number {
		if r.OfCheckpoint.Known() {
			return r.OfCheckpoint
		}
		return 0 // the checkpoint itself
	}
	slices.SortStableFunc(rows, func(a, b FailureRow) int {
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

// OutageVerdicts say in words which rule is best, and by how much over the next one.
func OutageVerdicts(rows []FailureRow) (verdicts []string) {
	for _, group := range failureGroups(rows) {
		for _, kills := range []int{1, 2} {
			list := slices.DeleteFunc(ranked(group), func(r FailureRow) bool { return r.Kills != kills || !r.OfCheckpoint.Known() })
			if len(list) < 2 {
				continue
			}
			points, deviation := list[0].above(&list[1], func(p FailurePoint) float64 { return p.Seconds })
			verdicts = append(verdicts, fmt.Sprintf("%s, %d workers, %d kills: %s is best, %s points above %s after equal time", list[0].Model, list[0].Workers, kills,
				list[0].Preset, plusMinus("%+.2f", points, deviation), list[1].Preset))
		}
	}
	return verdicts
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
