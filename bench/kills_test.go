package bench

import (
	"math"
	"testing"
)

func TestHalfOfTheKillsTookAtMostTheMedian(t *testing.T) {
	var rows []KillsRow
	if p50, p99, longest := Recoveries(rows); !math.IsNaN(p50) || !math.IsNaN(p99) || !math.IsNaN(longest) {
		t.Errorf("no kills: %v, %v", p50, p99)
	}
	for i := range 200 {
		rows = append(rows, KillsRow{Recovery: float64((i*71)%200 + 1)}, KillsRow{Recovery: math.NaN()})
	}
	if p50, p99, longest := Recoveries(rows); p50 != 100 || p99 != 198 || longest != 200 {
		t.Errorf("of 1 to 200 seconds: %v, %v; want 100, 198", p50, p99)
	}
}

// A shard that goes on with the sum that it waited with is untouched; one that was lost has not outlived anything.
func TestSurvivorsAreThoseWithTheSumsOfBefore(t *testing.T) {
	log := `=== a line of the launcher
{"msg":"a shard waits for its line to begin","shard":1,"line":2,"step":99,"sum":7}
{"msg":"a shard waits for its line to begin","shard":1,"line":2,"step":100,"sum":8}
{"msg":"something else","shard":1,"line":2,"step":100,"sum":9}
{"msg":"a shard goes on","shard":1,"line":2,"step":99,"sum":7}
{"msg":"a shard goes on","shard":2,"line":2,"step":99,"sum":5}
{"msg":"a shard waits for its line to begin","shard":1,"line":3,"step":120,"sum":10}
{"msg":"a shard goes on","shard":1,"line":3,"step":120,"sum":11}
{"msg":"a shard waits for its line to begin","shard":1,"line":4,"step":130,"sum":10}
{"msg":"a shard goes on","shard":1,"line":4,"step":131,"sum":10}
`
	if kept, touched := outlived([]byte(log)); kept != 3 || touched != 2 {
		t.Errorf("%d shards have outlived a line, %d of them touched; want 3 and 2", kept, touched)
	}
}
