package machine

import (
	"io"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench"
)

func TestCheckpointMeasuresSavesAndRestoresBesideTheirBounds(t *testing.T) {
	rows, err := Checkpoint(t.Context(), CheckpointConfig{Dir: t.TempDir(), Sizes: []int{1 << 20}, Rounds: 2, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	bounded := map[string]bool{}
	for _, r := range rows {
		if r.Bytes != 1<<20 || !(r.Seconds > 0) {
			t.Errorf("%s, %s: %d bytes in %v s", r.Name, r.Variant, r.Bytes, r.Seconds)
		}
		if (r.Device == "disk") != (r.BoundGBPerS == 0) {
			t.Errorf("%s, %s on %s has a bound of %v GB/s", r.Name, r.Variant, r.Device, r.BoundGBPerS)
		}
		bounded[r.Name] = r.BoundGBPerS > 0
	}
	if !bounded["save"] || !bounded["restore"] {
		t.Errorf("rows: %+v", rows)
	}
}

func TestCheckCheckpointNamesWhatMissesItsGoal(t *testing.T) {
	row := bench.Row{Name: "save", Variant: "whole shard", BoundGBPerS: 1, Fraction: 0.95}
	if err := CheckCheckpoint([]bench.Row{row}); err != nil {
		t.Error(err)
	}
	row.Fraction = 0.5
	if err := CheckCheckpoint([]bench.Row{row}); err == nil {
		t.Error("half of the bound passes")
	}
}
