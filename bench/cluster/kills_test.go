package cluster

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/server"
)

// Every state that the way to recover has is drawn, and every fault can be parsed. A process that
// is to die when it joins dies before, early enough to be back in time.
func TestEveryStateIsDrawnThatTheRecoveryHas(t *testing.T) {
	for _, joins := range []bool{false, true} {
		cfg := KillsConfig{Kills: 60, Seed: 1, Calm: 2, Servers: 3, Workers: 2, Steps: 200, Exact: true, Joins: joins}
		var drawn []string
		for _, row := range cfg.victims() {
			drawn = append(drawn, row.State)
			faults, err := launch.ParseFaults(row.faults)
			if err != nil {
				t.Fatal(err)
			}
			if joining := row.State == string(server.Joining); !joining && len(faults) == 1 {
				continue
			}
			if len(faults) != 2 || faults[0].Part != faults[1].Part || faults[0].At.Step == 0 || faults[0].At.Step > 25 || faults[1].At.State != row.State {
				t.Errorf("%s: %+v", row.Fault, faults)
			}
		}
		for _, state := range slices.Concat(launch.ServerStates(), launch.WorkerStates(), []string{"idle", "any"}) {
			if want := joins || state != string(server.Joining); slices.Contains(drawn, state) != want {
				t.Errorf("joins %v: state %s is drawn: %v", joins, state, !want)
			}
		}
	}
}

func TestHalfOfTheKillsTookAtMostTheMedian(t *testing.T) {
	var rows []KillsRow
	if p50, p99, longest := Recoveries(rows); p50.Known() || p99.Known() || longest.Known() {
		t.Errorf("no kills: %v, %v", p50, p99)
	}
	for i := range 200 {
		rows = append(rows, KillsRow{Recovery: record.Number((i*71)%200 + 1)}, KillsRow{Recovery: record.Unknown()})
	}
	if p50, p99, longest := Recoveries(rows); p50 != 100 || p99 != 198 || longest != 200 {
		t.Errorf("of 1 to 200 seconds: %v, %v; want 100, 198", p50, p99)
	}
}

// A shard that goes on with the checksum that it had before is untouched. A shard that was lost has
// not survived anything.
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
