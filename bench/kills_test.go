package bench

import (
	"math"
	"testing"
)

func TestHalfOfTheKillsTookAtMostTheMedian(t *testing.T) {
	var rows []KillsRow
	if p50, p99 := Recoveries(rows); !math.IsNaN(p50) || !math.IsNaN(p99) {
		t.Errorf("no kills: %v, %v", p50, p99)
	}
	for i := range 200 {
		rows = append(rows, KillsRow{Recovery: float64((i*71)%200 + 1)}, KillsRow{Recovery: math.NaN()})
	}
	if p50, p99 := Recoveries(rows); p50 != 100 || p99 != 198 {
		t.Errorf("of 1 to 200 seconds: %v, %v; want 100, 198", p50, p99)
	}
}
