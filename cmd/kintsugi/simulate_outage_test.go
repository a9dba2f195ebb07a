package main

import (
	"fmt"
	"strings"
	"testing"
)

// An outage of ten minutes takes the memory of at most four gradients under every rule, and no
// computed gradient is reported twice.
func TestSimulateAnOutageOfTenMinutes(t *testing.T) {
	notUnderRace(t)
	out := must(t, "simulate", "--workers", "3", "--consistency", "async", "--mean", "100ms", "--steps", "100", "--outage", "10m")
	rules := 0
	for line := range strings.Lines(out) {
		var rule, holds string
		var computed, arrays, bytes, bound, counted, dropped int
		if n, _ := fmt.Sscan(line, &rule, &computed, &arrays, &bytes, &bound, &holds, &counted, &dropped); n < 8 {
			continue
		}
		rules++
		if computed < 3*4000 || arrays < 1 || bytes != 4*arrays || bytes > bound || bound != 16 || holds != "true" || counted > computed || counted+dropped != computed || counted == 0 {
			t.Errorf("%s: %d computed, %d arrays, %d counted, %d dropped", rule, computed, arrays, counted, dropped)
		}
	}
	if rules != 4 {
		t.Errorf("%d rules in\n%s", rules, out)
	}
}
