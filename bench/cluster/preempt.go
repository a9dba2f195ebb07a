package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what is a notice before the end of a process worth? The claim that could be false:
// around a notice the longest step is shorter than around a SIGKILL, and no step is lost.
//
// One run has both in turn, for the same process, so that both happen on the same machine in the
// same minutes.

// PreemptConfig configures Preempt.
type PreemptConfig struct {
	Recoveries       []string
	Parts            []string // such as server/1
	Servers, Workers int
	Pairs            int // of a notice and a kill, in each run
	Every            int // steps between them
	Binary           string
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// PreemptRow is one process with one recovery.
type PreemptRow struct {
	Name     string  `json:"name"`
	Recovery string  `json:"recovery"`
	Part     string  `json:"part"`
	Usual    float64 `json:"usual_step_seconds"` // median over all steps

	Notice Interruption `json:"notice"`
	Kill   Interruption `json:"kill"`
}

// Interruption describes what happened around notices, or around kills.
type Interruption struct {
	Count int `json:"count"`

	// Gap is, around a notice, the longest time between two steps up to the first step without the
	// process; around a kill, the time to that step.
	Gap    record.Number `json:"gap_seconds_p50"` // unknown if a run ended before that step
	GapMax record.Number `json:"gap_seconds_max"`

	// Return is the longest time between two steps after that, while the next life of the process
	// joins.
	Return float64 `json:"return_seconds_p50"`

	Lost uint64 `json:"lost_steps"` // total
}

// Preempt makes a run for each recovery and each process.
func Preempt(ctx context.Context, cfg PreemptConfig) ([]PreemptRow, error) {
	var rows []PreemptRow
	for _, recovery := range cfg.Recoveries {
		for _, part := range cfg.Parts {
			run, err := process.Train(ctx, cfg.Binary, cfg.args(recovery, part))
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

// noticed summarises what happened around departures and deaths.
func noticed(run *record.Run) (row PreemptRow) {
	var took []float64
	for i := 1; i < len(run.Steps); i++ {
		took = append(took, run.Steps[i].Seconds-run.Steps[i-1].Seconds)
	}
	row.Usual = bench.Median(took)
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
		x.Gap, x.GapMax, x.Return = record.Number(bench.Median(gaps)), record.Number(slices.Max(gaps)), bench.Median(returns)
	}
}

// recovered returns when the first step after a failure was released.
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
