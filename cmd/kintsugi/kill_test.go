package main

import (
	"fmt"
	"math"
	"testing"
)

// killSteps is the number of steps of the runs that are killed in the middle. They take about a
// second.
const killSteps = 300

// seeds is the number of undisturbed runs, with seeds from 1 on.
const seeds = 6

// Steps lack the gradients of a worker until it is back, and how many steps that are depends on the machine. So the
// loss is between those of runs with and without that worker.
func TestKillsEndInTheSameLoss(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		for _, part := range []string{"server/1", "worker/1", "coordinator"} {
			killed(t, 1, part, killSteps/2)
		}
		return
	}
	var undisturbed [seeds]string // run folders, by seed - 1
	sum, squares := 0.0, 0.0
	for i := range undisturbed {
		dir := newDir(t)
		must(t, quadratic(killSteps, "--seed", fmt.Sprint(i+1), "--out", dir)...)
		undisturbed[i] = dir
		loss := float64(readRun(t, dir).Summary.FinalLoss)
		sum += loss
		squares += loss * loss
	}
	mean := sum / seeds
	deviation := math.Sqrt((squares - sum*mean) / (seeds - 1))
	t.Logf("undisturbed: loss %.5f, standard deviation %.5f", mean, deviation)
	seed := 0
	for _, part := range []string{"server/0", "worker/1", "coordinator"} {
		for _, step := range []int{15, killSteps * 5 / 6} {
			seed++
			t.Run(fmt.Sprintf("%s at step %d", part, step), func(t *testing.T) {
				dir := killed(t, seed, part, step)
				loss, most := float64(readRun(t, dir).Summary.FinalLoss), mean
				if part == "worker/1" {
					alone := newDir(t)
					must(t, quadratic(killSteps, "--seed", fmt.Sprint(seed), "--workers", "1", "--out", alone)...)
					most = float64(readRun(t, alone).Summary.FinalLoss)
				} else {
					sameBits(t, dir, undisturbed[seed-1])
				}
				if !(loss >= mean-3*deviation && loss <= most+3*deviation) {
					t.Errorf("loss %.5f; want %.5f to %.5f, ± 3 × %.5f", loss, mean, most, deviation)
				}
			})
		}
	}
}

func TestKillsThatMeetEndInTheSameParameters(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	want := newDir(t)
	must(t, quadratic(200, "--out", want)...)
	for name, faults := range map[string][]string{
		"both servers at once":          {"kill server/0 at step 100", "kill server/1 at step 100"},
		"again before it has caught up": {"kill server/1 at step 60", "kill server/1 at step 61", "kill server/0 at step 62"},
		"while the place stays empty":   {"kill server/0 at step 60 for 1s", "kill server/1 at step 60"},
		"before the first step":         {"kill server/1 at 100ms", "kill coordinator at 150ms"},
		"at the last step":              {"kill server/1 at step 199"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			args := quadratic(200, "--out", dir)
			for _, f := range faults {
				args = append(args, "--fault", f)
			}
			must(t, args...)
			sameBits(t, dir, want)
			noOrphans(t, dir)
		})
	}
}

// killed trains, with one process killed at a step. It checks that all steps were made
// nevertheless, and returns the run's folder.
func killed(t *testing.T, seed int, part string, step int) string {
	t.Helper()
	dir := newDir(t)
	must(t, quadratic(killSteps, "--seed", fmt.Sprint(seed), "--out", dir, "--fault", fmt.Sprintf("kill %s at step %d", part, step))...)
	s := readRun(t, dir).Summary
	if s.Steps != killSteps || len(s.Failures) != 1 || s.Failures[0].Part != part || !s.Failures[0].Injected {
		t.Errorf("%d of %d steps, failures %+v; want one of %s", s.Steps, killSteps, s.Failures, part)
	}
	noOrphans(t, dir)
	return dir
}
