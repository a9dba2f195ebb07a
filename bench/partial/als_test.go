package partial

import (
	"io"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// TestPartialRecoveryOfFactorsCostsLess than going back, in the publication's workload on part of
// the generated ratings.
func TestPartialRecoveryOfFactorsCostsLess(t *testing.T) {
	race.Skip(t)
	set, err := data.Open("ratings", "")
	if err != nil {
		t.Fatal(err)
	}
	r := set.Train.(*data.Ratings)
	r.User, r.Item, r.Value = r.User[:4000], r.Item[:4000], r.Value[:4000]
	p, err := ProblemOf("als", set)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Run(t.Context(), Config{
		Problems: []Problem{p}, Strategies: []string{"full", "partial", "replica"}, Lost: []float64{0.25}, Periods: []int{8}, Trials: 4, Seeds: 1, Threads: 2, Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Missing != "" || r.Workload != "als" || r.Values != 1300*9 {
			t.Errorf("%+v", r)
		}
		if r.Strategy == "partial" && !(r.Rework < r.Baseline) {
			t.Errorf("partial recovery costs %.2f steps, going back %.2f", r.Rework, r.Baseline)
		}
	}
	if _, err := ProblemOf("als", nil); err == nil {
		t.Error("least squares without ratings were taken")
	}
}
