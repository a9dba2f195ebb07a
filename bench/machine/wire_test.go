package machine

import (
	"bytes"
	"io"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

func TestWireMeasuresEachWayBesideItsBound(t *testing.T) {
	race.Skip(t)
	cfg := WireConfig{Workers: 2, Servers: 2, Sizes: []int{1 << 20}, Frame: 64 << 10, Rounds: 1, TLS: true, Progress: io.Discard}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	rows, err := Wire(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Bytes != 2<<20 || !(r.Seconds > 0) || !(r.CPUPerGB >= 0) {
			t.Errorf("%s, %s, %s: %d bytes in %v s with %v s of processor for each GB", r.Name, r.Device, r.Variant, r.Bytes, r.Seconds, r.CPUPerGB)
		}
		if ours := r.Device == "grpc" || r.Device == "grpc+tls" || r.Device == "shm"; ours != (r.Fraction > 0) {
			t.Errorf("%s, %s: %v of a bound", r.Device, r.Variant, r.Fraction)
		}
	}
	if len(rows) < 7 {
		t.Errorf("%d ways: %+v", len(rows), rows)
	}
	cfg.Frame = 1000
	if cfg.Check() == nil {
		t.Error("frames of 1000 bytes pass")
	}
}

// The benchmark measures that gradients arrive: by each way all of them, where they are to land.
func TestEveryWayLandsTheGradients(t *testing.T) {
	cfg := &WireConfig{Workers: 2, Servers: 2, Frame: 64 << 10, TLS: true}
	w := newWire(t.Context(), cfg, 1<<20)
	defer w.close()
	if err := w.ways(); err != nil {
		t.Fatal(err)
	}
	for i, l := range w.links {
		r := w.timed[i].Row
		if r.Name == "sum" || r.Device == "shm" || r.Variant == "read in place" {
			continue // they stay where they are
		}
		for _, b := range w.landed {
			clear(b)
		}
		if err := w.pushAll(l); err != nil || w.err != nil {
			t.Fatalf("%s, %s: %v, %v", r.Device, r.Variant, err, w.err)
		}
		for k := range w.landed {
			if !bytes.Equal(w.landed[k], w.gradients[k]) {
				t.Errorf("%s, %s: the gradient of worker %d has not arrived", r.Device, r.Variant, k)
			}
		}
	}
}

func TestCheckWireNamesWhatMissesItsGoal(t *testing.T) {
	row := WireRow{Row: bench.Row{Name: "push", Device: "grpc", Variant: "landed", BoundGBPerS: 1, Fraction: 0.7}}
	if err := CheckWire([]WireRow{row}); err != nil {
		t.Error(err)
	}
	row.Fraction = 0.3
	if err := CheckWire([]WireRow{row}); err == nil {
		t.Error("a third of the bound passes")
	}
}
