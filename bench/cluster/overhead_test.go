package cluster

import (
	"slices"
	"testing"
)

// Each round begins with the run that the others are compared with.
func TestTheRunningCheckpointIsComparedWithNone(t *testing.T) {
	for _, c := range []struct {
		fractions, limits []string
		want              []overheadCell
	}{
		{[]string{"off", "1/2"}, []string{"", "5MB/s"}, []overheadCell{{"off", ""}, {"1/2", ""}, {"1/2", "5MB/s"}}},
		{[]string{"1/2", "off", "1/2"}, []string{"5MB/s"}, []overheadCell{{"off", "5MB/s"}, {"1/2", "5MB/s"}}},
		{[]string{"1/8"}, []string{"", ""}, []overheadCell{{"off", ""}, {"1/8", ""}}},
	} {
		cfg := OverheadConfig{Fractions: c.fractions, Limits: c.limits}
		if got := cfg.cells(); !slices.Equal(got, c.want) {
			t.Errorf("%q on %q: %v, want %v", c.fractions, c.limits, got, c.want)
		}
	}
}
