// Package codecs asks how much smaller gradients can be before a model suffers. All runs make the
// same synchronous steps from the same batches; only the codec differs. The claim that could be
// false: with bf16, int8, the largest hundredth (topk:0.01) and signs, each with error feedback,
// mlp and lenet end within 0.3 points of their test accuracy with float32.
//
// One setting is adapted to the codec: the momentum. Some codecs send little or nothing of a value
// in most steps, and then deliver all that feedback has kept of it at once. A momentum of 0.9
// multiplies each delivery by ten, in the ten steps after it, before the next gradient takes it
// into account. Signs then diverge on mlp, and topk:0.01 needs twice the steps. So these codecs are
// trained with a momentum of 0.5, and with the learning rate that moves the parameters equally far
// in the long run. Signs on lenet use half of that rate: with all of it, one seed in a few ends a
// point or two lower. The table has both numbers.
//
// The workers are simulated. Codecs, error feedback, frames and steps are those of a cluster, but
// there are no processes. A cluster of processes ends with the same bits; a test shows that.
package codecs

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/internal/words"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Config configures Run.
type Config struct {
	Problems []Problem
	Codecs   []string
	Seeds    int // number of runs with each codec, with the seeds 1, 2, …
	Steps    kintsugi.Step
	Workers  int
	Threads  int // number of runs at the same time; only the seconds depend on it
	Progress io.Writer
}

// Problem is a model and its data.
type Problem struct {
	Model, Data string
	Layout      *kintsugi.Layout
	Schedule    conductor.Schedule // for a run of Config.Steps steps that sends float32

	// Open returns a trainee that computes in one goroutine, for runs with one seed.
	Open func(seed uint64) (Trainee, error)
}

// Trainee computes for one run.
type Trainee struct {
	Init     func(params []float32) error
	Gradient worker.Gradient
	Accuracy func(ctx context.Context, params []float32) (float64, error) // on the test set
	Close    func() error
}

// Row is one codec on one problem.
type Row struct {
	Name         string        `json:"name"`
	Model        string        `json:"model"`
	Data         string        `json:"data"`
	Codec        string        `json:"codec"`
	Parameters   int           `json:"parameters"`
	Seeds        int           `json:"seeds"`
	Steps        uint64        `json:"steps"`
	Workers      int           `json:"workers"`
	LearningRate float64       `json:"learning_rate"`
	Momentum     float64       `json:"momentum"`
	Accuracy     []float64     `json:"accuracy"` // by seed, at the end of the run
	Mean         float64       `json:"mean"`
	Deviation    record.Number `json:"deviation"`         // of one run: sample standard deviation; unknown for one seed
	Points       record.Number `json:"points_above_fp32"` // hundredths of accuracy, mean over the seeds; unknown without fp32
	PointsError  record.Number `json:"points_error"`      // standard error of that mean
	BytesPushed  uint64        `json:"bytes_pushed"`      // per run, including headers
	FP32Bytes    uint64        `json:"fp32_bytes_pushed"` // per run that sends float32
	BytesPerStep float64       `json:"bytes_per_gradient"`
	Seconds      float64       `json:"seconds"` // mean time of a run, on one thread
	Curve        []Moment      `json:"curve"`
}

// Moment is a point of a curve: means over the seeds.
type Moment struct {
	Step     uint64  `json:"step"`
	Bytes    float64 `json:"bytes_pushed"`
	Accuracy float64 `json:"accuracy"`
}

// moments is the number of evaluations in a run.
const moments = 8

// trial is one run.
type trial struct {
	problem  *Problem
	codec    compress.Codec
	schedule conductor.Schedule
	row      int
	seed     uint64
	curve    []Moment
	bytes    uint64
	seconds  float64
}

// burstMomentum is the momentum for codecs that deliver in bursts.
const burstMomentum = 0.5

// signRate is the fraction of the learning rate that a model uses with signs; 1 for other models.
var signRate = map[string]float64{"lenet": 0.5, "cnn": 0.5}

// scheduleFor returns the schedule for a model with a codec; see the top of this file.
func scheduleFor(codec compress.Codec, model string, s conductor.Schedule) conductor.Schedule {
	e := codec.Encoding()
	if e != kernels.Sign && e != kernels.Sparse16 && e != kernels.Sparse32 || s.Momentum <= burstMomentum {
		return s
	}
	s.LearningRate *= (1 - burstMomentum) / (1 - s.Momentum)
	s.Momentum = burstMomentum
	if f := signRate[model]; e == kernels.Sign && f > 0 {
		s.LearningRate *= f
	}
	return s
}

// Run trains every problem with every codec and every seed.
func Run(ctx context.Context, cfg Config) ([]Row, error) {
	var rows []Row
	var runs []*trial
	for i := range cfg.Problems {
		p := &cfg.Problems[i]
		for _, spec := range cfg.Codecs {
			codec, err := compress.Parse(spec)
			if err != nil {
				return nil, err
			}
			schedule := scheduleFor(codec, p.Model, p.Schedule)
			rows = append(rows, Row{
				Name: fmt.Sprintf("codecs/%s/%s/%s", p.Model, p.Data, spec), Model: p.Model, Data: p.Data, Codec: spec, Parameters: p.Layout.Values,
				Seeds: cfg.Seeds, Steps: uint64(cfg.Steps), Workers: cfg.Workers, FP32Bytes: cfg.fp32Bytes(p.Layout),
				LearningRate: schedule.LearningRate, Momentum: schedule.Momentum,
			})
			for seed := range cfg.Seeds {
				runs = append(runs, &trial{problem: p, codec: codec, schedule: schedule, row: len(rows) - 1, seed: uint64(seed + 1)})
			}
		}
	}
	if err := cfg.all(ctx, rows, runs); err != nil {
		return nil, err
	}
	for _, r := range runs {
		rows[r.row].add(r)
	}
	compare(rows)
	return rows, nil
}

// all makes the runs, several at a time.
func (cfg *Config) all(ctx context.Context, rows []Row, runs []*trial) error {
	progress := bench.NewCountdown(cfg.Progress, len(runs))
	return bench.Each(ctx, cfg.Threads, len(runs), func(ctx context.Context, i int) error {
		r := runs[i]
		if err := cfg.run(ctx, r); err != nil {
			return fmt.Errorf("%s, seed %d: %w", rows[r.row].Name, r.seed, err)
		}
		progress.Ended(fmt.Sprintf("%s on %s with %s, seed %d: %.4f, %s pushed", r.problem.Model, r.problem.Data,
			rows[r.row].Codec, r.seed, r.curve[len(r.curve)-1].Accuracy, words.Bytes(float64(r.bytes))))
		return nil
	})
}

// run trains once.
func (cfg *Config) run(ctx context.Context, r *trial) error {
	start := time.Now()
	t, err := r.problem.Open(r.seed)
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }() // it has nothing to lose
	trainer, err := simulate(cfg, r, t)
	if err != nil {
		return err
	}
	for v := range cfg.Steps {
		if err := trainer.step(ctx, v); err != nil {
			return err
		}
		if (uint64(v)+1)*moments/uint64(cfg.Steps) == uint64(v)*moments/uint64(cfg.Steps) {
			continue
		}
		accuracy, err := t.Accuracy(ctx, trainer.params)
		if err != nil {
			return err
		}
		r.curve = append(r.curve, Moment{Step: uint64(v) + 1, Bytes: float64(trainer.bytes), Accuracy: accuracy})
	}
	r.bytes, r.seconds = trainer.bytes, time.Since(start).Seconds()
	return nil
}

// add adds the results of a run.
func (row *Row) add(r *trial) {
	n := float64(row.Seeds)
	if row.Curve == nil {
		row.Curve = make([]Moment, len(r.curve))
	}
	for i, m := range r.curve {
		row.Curve[i].Step = m.Step
		row.Curve[i].Bytes += m.Bytes / n
		row.Curve[i].Accuracy += m.Accuracy / n
	}
	row.Accuracy = append(row.Accuracy, r.curve[len(r.curve)-1].Accuracy)
	row.Mean, row.Deviation = bench.MeanDeviation(row.Accuracy)
	row.BytesPushed += uint64(float64(r.bytes) / n)
	row.BytesPerStep += float64(r.bytes) / n / float64(row.Steps) / float64(row.Workers)
	row.Seconds += r.seconds / n
}

// compare computes how far each row is from fp32 on the same problem, if that was measured.
func compare(rows []Row) {
	for i := range rows {
		row := &rows[i]
		row.Points, row.PointsError = record.Unknown(), record.Unknown()
		at := slices.IndexFunc(rows, func(o Row) bool { return o.Codec == "fp32" && o.Model == row.Model && o.Data == row.Data })
		if at < 0 {
			continue
		}
		var points []float64 // runs with the same seed have the same batches
		for s, a := range row.Accuracy {
			points = append(points, 100*(a-rows[at].Accuracy[s]))
		}
		mean, deviation := bench.MeanDeviation(points)
		row.Points, row.PointsError = record.Number(mean), deviation/record.Number(math.Sqrt(float64(len(points))))
	}
}

// fp32Bytes returns the bytes that a run with float32 pushes.
func (cfg *Config) fp32Bytes(l *kintsugi.Layout) uint64 {
	frames := transport.Frames(l, l.Split(1)[0])
	return uint64(cfg.Steps) * uint64(cfg.Workers) * uint64(4*l.Values+len(frames)*transport.HeaderBytes)
}
