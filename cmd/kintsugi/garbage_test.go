package main

import (
	"slices"
	"testing"
)

// Of a large model, each process has in memory what it works with, and not once more what it was
// told of it when it began.
func TestProcessesHoldNoMoreOfAModelThanTheyNeed(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	const values = 8_000_010
	// Frames are sent. A worker that reads servers' versions in place has their pages in its peak too: two versions or
	// more, as fast as readers happen to be. And gradients take their time, since the launcher looks every second.
	peaks := func(flags []string, words ...string) map[string]uint64 {
		dir := newDir(t)
		must(t, append([]string{"train", "--workers", "2", "--servers", "2", "--steps", "10", "--optimizer", "adam", "--wire", "grpc", "--gradient-time", "200ms", "--out", dir}, slices.Concat(flags, ownProgram, words)...)...)
		peaks := make(map[string]uint64)
		for _, l := range readRun(t, dir).Lives {
			peaks[l.Part] = max(peaks[l.Part], l.PeakBytes)
		}
		return peaks
	}
	small, large := peaks(nil), peaks(nil, "large")
	const local = "worker/0 with local steps"
	small[local], large[local] = small["worker/0"], peaks([]string{"--local-steps", "2"}, "large")["worker/0"]
	for part, most := range map[string]float64{ // bytes per parameter of the model
		"coordinator": 1,
		"worker/0":    20, // parameters and gradient, and those of its program
		local:         32, // parameters and two means more
		"server/0":    30, // of half of the model: five times the parameters, three times two means, a copy of what is saved, and two gradients
	} {
		if small[part] == 0 {
			t.Fatalf("no peak of %s is on record", part)
		}
		if got := (float64(large[part]) - float64(small[part])) / values; !(got <= most) {
			t.Errorf("%s takes %.1f bytes for each parameter, want %g at most", part, got, most)
		} else {
			t.Logf("%s takes %.1f bytes for each parameter", part, got)
		}
	}
}
