package bench

import (
	"slices"
	"testing"
)

// Every row has one to be compared with: without any recovery, of the same model, on as many servers.
func TestEveryTaxIsComparedWithTheSameServers(t *testing.T) {
	cfg := TaxConfig{Models: []string{"cnn", "mlp"}, Recoveries: []string{"none", "checkpoint", "chain:2", "chain:3"}, Servers: 2}
	rows := cfg.rows()
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
		if !slices.ContainsFunc(rows, func(b TaxRow) bool { return b.Recovery == "none" && b.Model == r.Model && b.Servers == r.Servers }) {
			t.Errorf("%s has none to be compared with", r.Name)
		}
	}
	want := []string{"tax/cnn/none/servers=2", "tax/cnn/checkpoint/servers=2", "tax/cnn/chain:2/servers=2", "tax/cnn/none/servers=3", "tax/cnn/chain:3/servers=3"}
	if len(names) != 2*len(want) || !slices.Equal(names[:len(want)], want) {
		t.Errorf("rows %q, want %q and those of mlp", names, want)
	}
}

func TestTheTaxIsTheMedianOfTheRoundsRatios(t *testing.T) {
	base := []TaxRow{{Steps: 100, CPU: 10}, {Steps: 50, CPU: 20}, {Steps: 200, CPU: 5}}
	r := TaxRow{Model: "cnn", Recovery: "chain:2"}
	r.fill([]TaxRow{{Steps: 90, CPU: 12}, {Steps: 40, CPU: 26}, {Steps: 168, CPU: 5.5}}, base)
	if r.Ratio != 0.84 || r.RatioMin != 0.8 || r.RatioMax != 0.9 || r.CPURatio != 1.2 || r.Steps != 90 || r.OK {
		t.Errorf("got %+v, want a ratio of 0.84 (0.8 to 0.9), of processors 1.2, not OK", r)
	}
}
