package cluster

import (
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Every row has one to be compared with: without any recovery, of the same model, on the same
// number of servers.
func TestEveryTaxIsComparedWithTheSameServers(t *testing.T) {
	cfg := TaxConfig{Models: []string{"cnn", "mlp"}, Recoveries: []string{"none", "checkpoint", "chain:2", "chain:3", "gold:3", "chain:next"}, Servers: 2}
	rows := cfg.rows()
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
		if !slices.ContainsFunc(rows, func(b TaxRow) bool { return b.Recovery == "none" && b.Model == r.Model && b.Servers == r.Servers }) {
			t.Errorf("%s has none to be compared with", r.Name)
		}
	}
	want := []string{"tax/cnn/none/servers=2", "tax/cnn/checkpoint/servers=2", "tax/cnn/chain:2/servers=2", "tax/cnn/none/servers=3", "tax/cnn/chain:3/servers=3", "tax/cnn/gold:3/servers=3", "tax/cnn/chain:next/servers=3"}
	if len(names) != 2*len(want) || !slices.Equal(names[:len(want)], want) {
		t.Errorf("rows %q, want %q and those of mlp", names, want)
	}
}

func TestTheTaxIsTheMedianOfTheRoundsRatios(t *testing.T) {
	base := []TaxRow{{Steps: 100, CPU: 10}, {Steps: 50, CPU: 20}, {Steps: 200, CPU: 5}}
	r := TaxRow{Model: "cnn", Recovery: "chain:2"}
	r.fill([]TaxRow{{Steps: 90, CPU: 12}, {Steps: 40, CPU: 26}, {Steps: 168, CPU: 5.5}}, base, 2)
	if r.Ratio != 0.84 || r.RatioMin != 0.8 || r.RatioMax != 0.9 || r.CPURatio != 1.2 || r.Steps != 90 || r.OK {
		t.Errorf("got %+v, want a ratio of 0.84 (0.8 to 0.9), of processors 1.2, not OK", r)
	}
	missed := r
	if err := CheckTax([]TaxRow{missed}); err == nil {
		t.Error("a claim that fails is no error")
	}
	for _, other := range []TaxRow{{Model: "mlp", Recovery: "chain:2"}, {Model: "cnn", Recovery: "chain:3"}} { // there is no claim about these
		other.fill([]TaxRow{{Steps: 50, CPU: 12}}, base[:1], 2)
		if err := CheckTax([]TaxRow{other}); err != nil {
			t.Error(err)
		}
	}
}

// A step of 10 ms takes 12 ms, and two cores would need 1.5 ms for what it computes in addition.
// Three quarters are contention, and without contention it would take 10.5 ms.
func TestWhatOfTheTaxIsOneMachineIsTold(t *testing.T) {
	near := func(what string, got record.Number, want float64) {
		t.Helper()
		if !(math.Abs(float64(got)-want) < 1e-9) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	base := []TaxRow{{Steps: 100, CPU: 18}}
	r := TaxRow{}
	r.fill([]TaxRow{{Steps: 1e3 / 12., CPU: 21}}, base, 2)
	near("extra", record.Number(r.Extra), 2)
	near("contention", r.Contention, 0.75)
	near("without it", r.Apart, 10/10.5)
	r.fill([]TaxRow{{Steps: 1e3 / 12., CPU: 27}}, base, 2) // more than the step becomes longer: cores were idle before
	near("contention", r.Contention, 1)
	near("without it", r.Apart, 1)
	r.fill([]TaxRow{{Steps: 50, CPU: 19}, {Steps: 50, CPU: record.Unknown()}}, append(base, base...), 2)
	if r.CPU.Known() || r.CPURatio.Known() || r.Cores.Known() || r.Contention.Known() || r.Ratio != 0.5 {
		t.Errorf("a round whose start took more processors than all of the run: %+v", r)
	}
	r.fill([]TaxRow{{Steps: 101, CPU: 19}}, base, 2)
	if r.Contention.Known() || r.Apart.Known() {
		t.Errorf("a step that takes no longer has a contention of %v", r.Contention)
	}
}
