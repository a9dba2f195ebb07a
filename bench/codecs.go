package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Question: how much smaller may gradients be before a model suffers? The same synchronous steps, made of the same
// batches, by workers that differ in nothing but the codec. The claim that could be false: with bf16, int8, the
// largest hundredth (topk:0.01) and signs, each with error feedback, mlp and lenet end within 0.3 points of the
// test accuracy that they reach with float32.
//
// One thing is adapted to a codec, the momentum. Codecs that send of a value little or nothing in
// most steps deliver what feedback has kept of it all at once, and a momentum of 0.9 makes ten
// times as much of each delivery in the ten steps that follow, before the next gradient knows of
// it: signs then diverge on mlp, and topk:0.01 needs twice the steps. They are trained with a
// momentum of 0.5, and with the learning rate that moves the parameters as far in the long run;
// signs on lenet with half of that: at the full one a seed in a few ends a point or two lower. The
// table has both numbers.
//
// The workers are simulated: their codecs, their error feedback, the frames that would travel and the step that
// reads them are those of a cluster, and the processes are not there. A cluster of processes ends with the same bits;
// internal/sim tests that.

// CodecsConfig says what Codecs measures.
type CodecsConfig struct {
	Problems []CodecsProblem
	Codecs   []string
	Seeds    int // runs with each codec, with the seeds 1, 2, …
	Steps    kintsugi.Step
	Workers  int
	Threads  int // runs at the same time; no figure but the seconds depends on it
	Progress io.Writer
}

// CodecsProblem is a model and its data.
type CodecsProblem struct {
	Model, Data string
	Layout      *kintsugi.Layout
	Schedule    conductor.Schedule // of a run of CodecsConfig.Steps that sends float32

	// Open returns what computes in one goroutine, for runs with one seed.
	Open func(seed uint64) (CodecsTrainee, error)
}

// CodecsTrainee computes for one run.
type CodecsTrainee struct {
	Init     func(params []float32) error
	Gradient worker.Gradient
	Accuracy func(ctx context.Context, params []float32) (float64, error) // on the test set
	Close    func() error
}

// CodecsRow is one codec on one problem.
type CodecsRow struct {
	Name         string         `json:"name"`
	Model        string         `json:"model"`
	Data         string         `json:"data"`
	Codec        string         `json:"codec"`
	Parameters   int            `json:"parameters"`
	Seeds        int            `json:"seeds"`
	Steps        uint64         `json:"steps"`
	Workers      int            `json:"workers"`
	LearningRate float64        `json:"learning_rate"`
	Momentum     float64        `json:"momentum"`
	Accuracy     []float64      `json:"accuracy"` // by seed, at the end
	Mean         float64        `json:"mean"`
	Deviation    float64        `json:"deviation"`         // of one run: sample standard deviation
	Points       float64        `json:"points_above_fp32"` // hundredths of accuracy, mean over the seeds
	PointsError  float64        `json:"points_error"`      // standard error of that mean
	BytesPushed  uint64         `json:"bytes_pushed"`      // of a run, headers included
	FP32Bytes    uint64         `json:"fp32_bytes_pushed"` // of a run that sends float32
	BytesPerStep float64        `json:"bytes_per_gradient"`
	Seconds      float64        `json:"seconds"` // mean of a run, on one thread
	Curve        []CodecsMoment `json:"curve"`
}

// CodecsMoment is a point of a curve: means over the seeds.
type CodecsMoment struct {
	Step     uint64  `json:"step"`
	Bytes    float64 `json:"bytes_pushed"`
	Accuracy float64 `json:"accuracy"`
}

// moments is how many times a run is evaluated.
const moments = 8

// codecsRun is one run.
type codecsRun struct {
	problem  *CodecsProblem
	codec    compress.Codec
	schedule conductor.Schedule
	row      int
	seed     uint64
	curve    []CodecsMoment
	bytes    uint64
	seconds  float64
}

// burstMomentum is the momentum of codecs that deliver in bursts.
const burstMomentum = 0.5

// signRate is the part of the learning rate that a model takes with signs, unless all of it.
var signRate = map[string]float64{"lenet": 0.5, "cnn": 0.5}

// scheduleFor returns the schedule of runs of a model with a codec; see the top of this file.
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

// Codecs trains every problem with every codec and every seed.
func Codecs(ctx context.Context, cfg CodecsConfig) ([]CodecsRow, error) {
	var rows []CodecsRow
	var runs []*codecsRun
	for i := range cfg.Problems {
		p := &cfg.Problems[i]
		for _, spec := range cfg.Codecs {
			codec, err := compress.Parse(spec)
			if err != nil {
				return nil, err
			}
			schedule := scheduleFor(codec, p.Model, p.Schedule)
			rows = append(rows, CodecsRow{
				Name: fmt.Sprintf("codecs/%s/%s/%s", p.Model, p.Data, spec), Model: p.Model, Data: p.Data, Codec: spec, Parameters: p.Layout.Values,
				Seeds: cfg.Seeds, Steps: uint64(cfg.Steps), Workers: cfg.Workers, FP32Bytes: cfg.fp32Bytes(p.Layout),
				LearningRate: schedule.LearningRate, Momentum: schedule.Momentum,
			})
			for seed := range cfg.Seeds {
				runs = append(runs, &codecsRun{problem: p, codec: codec, schedule: schedule, row: len(rows) - 1, seed: uint64(seed + 1)})
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

// all does the runs, several at a time.
func (cfg *CodecsConfig) all(ctx context.Context, rows []CodecsRow, runs []*codecsRun) error {
	progress := newCountdown(cfg.Progress, len(runs))
	return each(ctx, cfg.Threads, len(runs), func(ctx context.Context, i int) error {
		r := runs[i]
		if err := cfg.run(ctx, r); err != nil {
			return fmt.Errorf("%s, seed %d: %w", rows[r.row].Name, r.seed, err)
		}
		progress.ended(fmt.Sprintf("%s on %s with %s, seed %d: %.4f, %s pushed", r.problem.Model, r.problem.Data,
			rows[r.row].Codec, r.seed, r.curve[len(r.curve)-1].Accuracy, Bytes(float64(r.bytes))))
		return nil
	})
}

// run trains once.
func (cfg *CodecsConfig) run(ctx context.Context, r *codecsRun) error {
	start := time.Now()
	t, err := r.problem.Open(r.seed)
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }() // it holds nothing that could be lost
	trainer, err := newCodecsTrainer(cfg, r, t)
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
		r.curve = append(r.curve, CodecsMoment{Step: uint64(v) + 1, Bytes: float64(trainer.bytes), Accuracy: accuracy})
	}
	r.bytes, r.seconds = trainer.bytes, time.Since(start).Seconds()
	return nil
}

// add books a run.
func (row *CodecsRow) add(r *codecsRun) {
	n := float64(row.Seeds)
	if row.Curve == nil {
		row.Curve = make([]CodecsMoment, len(r.curve))
	}
	for i, m := range r.curve {
		row.Curve[i].Step = m.Step
		row.Curve[i].Bytes += m.Bytes / n
		row.Curve[i].Accuracy += m.Accuracy / n
	}
	row.Accuracy = append(row.Accuracy, r.curve[len(r.curve)-1].Accuracy)
	row.Mean, row.Deviation = meanDeviation(row.Accuracy)
	row.BytesPushed += uint64(float64(r.bytes) / n)
	row.BytesPerStep += float64(r.bytes) / n / float64(row.Steps) / float64(row.Workers)
	row.Seconds += r.seconds / n
}

// compare sets how far each row is from fp32 on the same problem, where that was measured; else NaN would not
// be JSON, and 0 is left.
func compare(rows []CodecsRow) {
	for i := range rows {
		row := &rows[i]
		at := slices.IndexFunc(rows, func(o CodecsRow) bool { return o.Codec == "fp32" && o.Model == row.Model && o.Data == row.Data })
		if at < 0 {
			continue
		}
		var points []float64 // the same seed has the same batches
		for s, a := range row.Accuracy {
			points = append(points, 100*(a-rows[at].Accuracy[s]))
		}
		var deviation float64
		row.Points, deviation = meanDeviation(points)
		row.PointsError = deviation / math.Sqrt(float64(len(points)))
	}
}

// fp32Bytes returns what a run pushes that sends float32.
func (cfg *CodecsConfig) fp32Bytes(l *kintsugi.Layout) uint64 {
	frames := transport.Frames(l, l.Split(1)[0])
	return uint64(cfg.Steps) * uint64(cfg.Workers) * uint64(4*l.Values+len(frames)*transport.HeaderBytes)
}

// Bytes writes a number of bytes as people do.
func Bytes(b float64) string {
	unit := 0
	for ; b >= 1000 && unit < 4; unit++ {
		b /= 1000
	}
	return fmt.Sprintf("%.3g %s", b, []string{"B", "kB", "MB", "GB", "TB"}[unit])
}
