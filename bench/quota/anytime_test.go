package quota

import (
	"io"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// If parts of unfinished gradients can be had for nothing, they never make the best fixed quota
// slower. If asking for them takes as long as a gradient does, they do.
func TestAnytimeComparesLikeWithLike(t *testing.T) {
	race.Skip(t)
	set, err := data.Open("digits", "")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Anytime(t.Context(), AnytimeConfig{
		Set: set, Examples: 300, Workers: 4, Batches: []int{4}, Alphas: []float64{0.5}, Costs: []float64{0, 1}, Rate: 0.5,
		Quotas: []int{1, 2, 4}, Seeds: 4, Steps: 15, Parallel: 2, Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 || rows[0].Partial || !rows[2].Partial || rows[2].Preset != "fixed" || rows[3].Preset != "dbw" || rows[4].Cost != 1 {
		t.Fatalf("got %+v", rows)
	}
	if free, dear := rows[2], rows[4]; free.Ratio < 0.95 || dear.Ratio > 0.9 || free.Ratio != rows[0].Seconds/free.Seconds {
		t.Errorf("parts that are free make it sooner by %v, dear ones by %v", free.Ratio, dear.Ratio)
	}
}
