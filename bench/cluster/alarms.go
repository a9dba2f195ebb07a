package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
)

// Question: does the failure detector of chains raise false alarms? Nothing fails in the run, but
// another program keeps all cores busy. The claim that could be false: in ten minutes no server is
// taken out of its chains.

// AlarmsConfig configures Alarms.
type AlarmsConfig struct {
	For              time.Duration
	Loaded           bool
	Model            string
	Servers, Workers int
	Replicas         int
	Binary           string
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// AlarmsRow is the result of the run.
type AlarmsRow struct {
	Name    string  `json:"name"`
	Model   string  `json:"model"`
	Loaded  bool    `json:"loaded"`
	Seconds float64 `json:"seconds"` // from the first step to the last
	Steps   int     `json:"steps"`
	Views   int     `json:"views"` // after the first one; each is a false alarm
	P50     float64 `json:"step_p50_ms"`
	P99     float64 `json:"step_p99_ms"`
	Longest float64 `json:"step_max_ms"`
	OK      bool    `json:"ok"`
}

// Alarms trains for cfg.For and counts the views.
func Alarms(ctx context.Context, cfg AlarmsConfig) (AlarmsRow, error) {
	r := AlarmsRow{Name: "alarms/" + cfg.Model, Model: cfg.Model, Loaded: cfg.Loaded}
	if cfg.Loaded {
		end, err := process.KeepBusy(cfg.Binary)
		if err != nil {
			return r, err
		}
		defer end()
	}
	run, err := process.TrainFor(ctx, cfg.Binary, cfg.For, append([]string{"--model", cfg.Model, "--recovery", "chain", "--replicas", strconv.Itoa(cfg.Replicas),
		"--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers)}, cfg.Flags...))
	if err != nil {
		return r, err
	}
	for _, v := range run.Views[min(1, len(run.Views)):] {
		r.Views++
		fmt.Fprintf(cfg.Progress, "after %.1f s: view %d: %s\n", v.Seconds, v.Number, v.Reason)
	}
	var pauses []float64
	for i, s := range run.Steps[min(len(run.Steps), 1):] {
		pauses = append(pauses, 1e3*(s.Seconds-run.Steps[i].Seconds))
		r.Seconds += s.Seconds - run.Steps[i].Seconds
	}
	if len(pauses) == 0 {
		return r, fmt.Errorf("no steps in %v", cfg.For)
	}
	slices.Sort(pauses)
	r.Steps, r.P50, r.P99, r.Longest = len(run.Steps), bench.Median(pauses), pauses[len(pauses)*99/100], pauses[len(pauses)-1]
	r.OK = r.Views == 0
	return r, nil
}
