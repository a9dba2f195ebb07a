package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: how well does a model do with the defaults of train, and how much of that is luck? The claim
// that could be false: on the generated digits lenet reaches 97 % and mlr stays four points behind.

// AccuracyConfig says what Accuracy measures.
type AccuracyConfig struct {
	Models   []string
	Seeds    int // runs per model, with the seeds 1, 2, …
	Binary   string
	Flags    []string // for train, besides model and seed
	Progress io.Writer
}

// AccuracyRow is one model: the test accuracy of each seed, their mean and standard deviation, and the mean of the
// losses on the test half, for a model of text in nats a character.
type AccuracyRow struct {
	Name      string    `json:"name"`
	Model     string    `json:"model"`
	Seeds     int       `json:"seeds"`
	Accuracy  []float64 `json:"accuracy"`
	Mean      float64   `json:"mean"`
	Deviation float64   `json:"deviation"` // sample standard deviation
	Loss      float64   `json:"test_loss"` // mean over the seeds
	Seconds   float64   `json:"seconds"`   // mean wall clock of a run
	Steps     uint64    `json:"steps"`
}

// Accuracy trains each model once per seed and reads what the last checkpoint reaches on the test set.
func Accuracy(ctx context.Context, cfg AccuracyConfig) ([]AccuracyRow, error) {
	var rows []AccuracyRow
	for _, m := range cfg.Models {
		row := AccuracyRow{Name: "accuracy/" + m, Model: m, Seeds: cfg.Seeds}
		for seed := range cfg.Seeds {
			s, err := cfg.run(ctx, m, seed+1)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(cfg.Progress, "%s seed %d: %.4f after %d steps and %.1f s\n", m, seed+1, float64(s.FinalAccuracy), s.Steps, s.WallSeconds)
			row.Accuracy = append(row.Accuracy, float64(s.FinalAccuracy))
			row.Loss += float64(s.FinalTestLoss) / float64(cfg.Seeds)
			row.Seconds += s.WallSeconds / float64(cfg.Seeds)
			row.Steps = s.Steps
		}
		row.Mean, row.Deviation = meanDeviation(row.Accuracy)
		rows = append(rows, row)
	}
	return rows, nil
}

func (cfg *AccuracyConfig) run(ctx context.Context, model string, seed int) (record.Summary, error) {
	run, err := runTrain(ctx, cfg.Binary, append([]string{"--model", model, "--seed", strconv.Itoa(seed)}, cfg.Flags...))
	if err != nil {
		return record.Summary{}, err
	}
	return run.Summary, nil
}

func meanDeviation(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / math.Max(1, float64(len(x)-1)))
}
