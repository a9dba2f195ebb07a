package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what is it worth to be told before a process goes? The claim that could be false:
// around a notice the longest step is shorter than around SIGKILL, and no step is lost.
//
// One run has both, in turn, on the same process: both meet the same machine in the same minute.

// PreemptConfig says what Preempt measures.
type PreemptConfig struct {
	Recoveries       []string
	Parts            []string // such as server/1
	Servers, Workers int
	Pairs            int // of a notice and a kill, in each run
	Every            int // steps from one to the next
	Binary           string
	Flags            []string // for train, besides the ones above
	Progress         io.Writer
}

// PreemptRow is one process with one recovery.
type PreemptRow struct {
	Name     string  `json:"name"`
	Recovery string  `json:"recovery"`
	Part     string  `json:"part"`
	Usual    float64 `json:"usual_step_seconds"` // median of all steps

	Notice Interruption `json:"notice"`
	Kill   Interruption `json:"kill"`
}

// Interruption is what happened around notices, or around kills.
type Interruption struct {
	Count int `json:"count"`

	// Gap is, around a notice, the longest time between two steps until the process had gone and a
	// step was made without it; around a kill the time until that step.
	Gap    float64 `json:"gap_seconds_p50"`
	GapMax float64 `json:"gap_seconds_max"`

	// Return is the longest time between two steps after that, while the next life of the process comes in.
	Return float64 `json:"return_seconds_p50"`

	Lost uint64 `json:"lost_steps"` // of all of them together
}

// Preempt runs each recovery with each process.
func Preempt(ctx context.Context, cfg PreemptConfig) ([]PreemptRow, error) {
	var rows []PreemptRow
	for _, recovery := range cfg.Recoveries {
		for _, part := range cfg.Parts {
			run, err := runTrain(ctx, cfg.Binary, cfg.args(recovery, part))
			if err != nil {
				return rows, fmt.Errorf("%s, %s: %w", recovery, part, err)
			}
			row := noticed(run)
			row.Name, row.Recovery, row.Part = "preempt/"+recovery+"/"+strings.ReplaceAll(part, "/", "-"), recovery, part
			fmt.Fprintf(cfg.Progress, "%s, %s: longest step around a notice %.3f s, around a kill %.3f s\n", recovery, part, row.Notice.Gap, row.Kill.Gap)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (cfg *PreemptConfig) args(recovery, part string) []string {
	steps := (2*cfg.Pairs + 1) * cfg.Every
	args := append([]string{"--recovery", recovery, "--steps", strconv.Itoa(steps), "--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers),
		"--eval-every", strconv.Itoa(2 * steps)}, cfg.Flags...)
	for i := range 2 * cfg.Pairs {
		verb := [2]string{"notice", "kill"}[i%2]
		args = append(args, "--fault", fmt.Sprintf("%s %s at step %d", verb, part, (i+1)*cfg.Every))
	}
	return args
}

// noticed sums up what happened around departures and deaths.
func noticed(run *record.Run) (row PreemptRow) {
	var took []float64
	for i := 1; i < len(run.Steps); i++ {
		took = append(took, run.Steps[i].Seconds-run.Steps[i-1].Seconds)
	}
	row.Usual = median(took)
	var notice, kill struct{ gaps, returns []float64 }
	for i, f := range run.Summary.Failures {
		if !f.RecoverySeconds.Known() {
			continue // the run was over
		}
		until := run.Summary.WallSeconds
		if i+1 < len(run.Summary.Failures) {
			until = run.Summary.Failures[i+1].Seconds
		}
		of, sums := &row.Kill, &kill
		if f.Announced {
			of, sums = &row.Notice, &notice
		}
		sums.gaps = append(sums.gaps, float64(f.RecoverySeconds))
		sums.returns = append(sums.returns, longestStep(run, recovered(run, f), until))
		of.Lost += f.LostSteps
	}
	row.Notice.of(notice.gaps, notice.returns)
	row.Kill.of(kill.gaps, kill.returns)
	return row
}

func (x *Interruption) of(gaps, returns []float64) {
	if x.Count = len(gaps); x.Count > 0 {
		x.Gap, x.GapMax, x.Return = median(gaps), slices.Max(gaps), median(returns)
	}
}

// recovered returns when the first step was released after a failure was over.
func recovered(run *record.Run, f record.FailureCost) float64 {
	for _, r := range run.Recoveries {
		if r.Part == f.Part && r.FailureSeconds == f.Seconds {
			return r.Seconds
		}
	}
	return f.Seconds
}

// longestStep returns the longest time between two releases that both lie in [from, until].
func longestStep(run *record.Run, from, until float64) (gap float64) {
	for i := 1; i < len(run.Steps); i++ {
		if before, s := run.Steps[i-1].Seconds, run.Steps[i].Seconds; before >= from && s <= until {
			gap = max(gap, s-before)
		}
	}
	return gap
}
