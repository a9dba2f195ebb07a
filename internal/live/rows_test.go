package live

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// table is a model whose steps touch rows, with an engine for each slot.
type table struct {
	desc      *model.Description
	set       *data.Set
	steps     kintsugi.Step
	schedule  conductor.Schedule
	scale     agg.Scale
	gradients []worker.Gradient
	reconcile []func([]kintsugi.ChunkRange)
	locks     []sync.Mutex // a worker's turn may overlap the turn that it has given up
}

// newTable returns a model on generated data.
func newTable(t *testing.T, name string, workers int) *table {
	t.Helper()
	x := &table{steps: 10, scale: agg.Sum, locks: make([]sync.Mutex, workers)}
	set := "ratings"
	if name == "lda" {
		set = "topics"
	}
	var err error
	if x.set, err = data.Open(set, ""); err != nil {
		t.Fatal(err)
	}
	in := model.Input{Users: x.set.Users, Items: x.set.Items}
	if r, ok := x.set.Train.(*data.Ratings); ok { // a part of the set is enough
		r.User, r.Item, r.Value = r.User[:6000], r.Item[:6000], r.Value[:6000]
	}
	if c := x.set.Corpus; c != nil {
		c.Train.Start = c.Train.Start[:151]
		c.Train.Words = c.Train.Words[:c.Train.Start[150]]
		in = model.Input{Words: c.Vocabulary, Tokens: len(c.Train.Words)}
	}
	if x.desc, err = model.Lookup(name, in); err != nil {
		t.Fatal(err)
	}
	if x.schedule.Rule, err = kintsugi.ParseRule(x.desc.Defaults.Optimizer); err != nil {
		t.Fatal(err)
	}
	x.schedule.LearningRate = float64(x.desc.Defaults.LearningRate)
	for range workers {
		switch name {
		case "lda":
			g, err := rows.NewGibbs(x.desc, x.set.Corpus.Train, workers, 3)
			if err != nil {
				t.Fatal(err)
			}
			x.gradients = append(x.gradients, g.Gradient)
		case "mf:als":
			a, err := rows.NewAlternate(x.desc, x.set.Train.(*data.Ratings), workers)
			if err != nil {
				t.Fatal(err)
			}
			x.gradients, x.reconcile = append(x.gradients, a.Gradient), append(x.reconcile, a.Reconcile)
		default:
			x.scale = agg.Mean
			x.gradients = append(x.gradients, x.descent(t, workers))
		}
	}
	return x
}

// descent returns the gradient of batches of 64.
func (x *table) descent(t *testing.T, workers int) worker.Gradient {
	m, err := model.New(x.desc, 64)
	if err != nil {
		t.Fatal(err)
	}
	sampler := data.Sampler{N: x.set.Train.Len(), Batch: 64, Slots: workers, Seed: 5}
	return func(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		b := examples(x.set.Train, sampler.Indices(nil, id.Slot, id.Version, id.Sequence))
		loss, err := m.Gradient(params, grads, b)
		return loss, b.N, err
	}
}

// live returns a cluster of the model.
func (x *table) live(t *testing.T, servers int) Config {
	layout, err := kintsugi.NewLayout(x.desc.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Servers: servers, Workers: len(x.gradients), Layout: layout, Steps: x.steps, Schedule: x.schedule, Device: kernels.Best(),
		Consistency: agg.Config{Scale: x.scale},
		Codec:       func(kintsugi.Slot) compress.Codec { return parse(t, "sparse") },
		Init:        func(params []float32) { x.init(t, params) },
		Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
			x.locks[id.Slot].Lock()
			defer x.locks[id.Slot].Unlock()
			return x.gradients[id.Slot](ctx, params, grads, id)
		},
	}
	if x.reconcile != nil {
		cfg.Reconcile = func(s kintsugi.Slot, lost []kintsugi.ChunkRange) {
			x.locks[s].Lock()
			defer x.locks[s].Unlock()
			x.reconcile[s](lost)
		}
	}
	return cfg
}

func (x *table) init(t *testing.T, params []float32) {
	if err := x.desc.Init(1, params); err != nil {
		t.Error(err)
	}
}

// alone makes the same steps without servers, codecs and chunks.
func (x *table) alone(t *testing.T) []float32 {
	t.Helper()
	n := x.desc.Values()
	params, grads, sum, state := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	x.init(t, params)
	for v := range x.steps {
		clear(sum)
		now := slices.Clone(params)
		examples := 0
		for slot, gradient := range x.gradients {
			_, batch, err := gradient(t.Context(), now, grads, kintsugi.PushID{Slot: kintsugi.Slot(slot), Version: v})
			if err != nil {
				t.Fatal(err)
			}
			examples += batch
			for i, g := range grads {
				switch {
				case x.schedule.Rule != kintsugi.RuleAssign && x.scale == agg.Sum:
					sum[i] += g
				case x.schedule.Rule != kintsugi.RuleAssign:
					sum[i] += float32(batch) * g // powers of two: the product is exact
				case math.Float32bits(g) != 0:
					params[i] = g
				}
			}
		}
		switch x.schedule.Rule {
		case kintsugi.RuleAdd:
			for i := range params {
				params[i] += sum[i]
			}
		case kintsugi.RuleAdagrad:
			o := x.schedule.At(v + 1)
			s := kernels.Step{Rule: kernels.Adagrad, Operands: []kernels.Operand{{Weight: 1, Values: sum}}, Scale: 1 / float32(examples), Params: params, Next: params,
				Scalars: kernels.Scalars{LearningRate: o.LearningRate, Epsilon: o.Epsilon}}
			s.State[0], s.NextState[0] = state, state
			if _, err := kernels.Host.Step(&s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return params
}

func wantBits(t *testing.T, got, want []float32) {
	t.Helper()
	for i := range got {
		if !sameBits(got[i], want[i]) {
			t.Fatalf("value %d of %d is %v, want %v", i, len(got), got[i], want[i])
		}
	}
}

var tables = []string{"mf", "mf:als", "lda"}

// TestRowsThroughServersAreRowsInALoop trains the models whose steps touch rows, through servers of
// which one is killed, and in a loop. Only touched rows travel, and the parameters end with the
// same bits.
func TestRowsThroughServersAreRowsInALoop(t *testing.T) {
	race.Skip(t)
	for _, name := range tables {
		t.Run(name, func(t *testing.T) {
			x := newTable(t, name, 4)
			want := x.alone(t)
			wantBits(t, run(t, x.live(t, 3), nil), want)
			cfg := x.live(t, 2)
			cfg.SaveEvery = 3
			wantBits(t, run(t, cfg, func(l *Cluster) {
				until(t, l, 5)
				l.KillServer(1)
				if err := l.StartServer(1); err != nil {
					t.Fatal(err)
				}
				l.NewView("a server came back")
			}), want)
		})
	}
}

// TestLostFactorsAreSolvedForAgain: a shard has rows of one factor only, and comes back alone, with
// rows of earlier versions. Alternating least squares goes on as if nothing had been lost.
func TestLostFactorsAreSolvedForAgain(t *testing.T) {
	race.Skip(t)
	x := newTable(t, "mf:als", 3)
	x.steps = 14
	want := x.alone(t)
	for _, victim := range []int{0, 3} { // users, items
		for _, at := range []kintsugi.Step{5, 6} {
			cfg := x.live(t, 4)
			cfg.RunEvery, cfg.SaveEvery = 2, 0
			chunks := cfg.Layout.Split(4)[victim]
			if lo, hi := cfg.Layout.Chunks[chunks.Lo].Tensor, cfg.Layout.Chunks[chunks.Hi-1].Tensor; lo != hi {
				t.Fatalf("shard %d has rows of both factors", victim)
			}
			wantBits(t, run(t, cfg, func(l *Cluster) {
				until(t, l, at)
				l.KillServer(victim)
				if err := l.StartServer(victim); err != nil {
					t.Fatal(err)
				}
				l.NewPartialView("a server was killed")
			}), want)
		}
	}
}

// wantCounted fails unless the counts of topics are those of the assignments, and every token has a
// topic.
func wantCounted(t *testing.T, x *table, params []float32) {
	t.Helper()
	p, words := x.desc.Topics, x.set.Corpus.Train.Words
	counts := make([]float32, p.Words*p.Topics)
	for i, z := range params[len(counts):] {
		if !(z >= 1 && z <= float32(p.Topics)) {
			t.Fatalf("token %d has topic %v of %d", i, z, p.Topics)
		}
		counts[int(words[i])*p.Topics+int(z)-1]++
	}
	wantBits(t, params[:len(counts)], counts)
}

// TestLostCountsAreMadeOfTheAssignments: whichever shard comes back in earlier versions, counts or
// assignments, the next step makes the counts those of the assignments.
func TestLostCountsAreMadeOfTheAssignments(t *testing.T) {
	race.Skip(t)
	for victim := range 3 {
		x := newTable(t, "lda", 3)
		cfg := x.live(t, 3)
		cfg.RunEvery, cfg.SaveEvery = 2, 0
		wantCounted(t, x, run(t, cfg, func(l *Cluster) {
			until(t, l, 5)
			l.KillServer(victim)
			if err := l.StartServer(victim); err != nil {
				t.Fatal(err)
			}
			l.NewPartialView("a server was killed")
		}))
	}
}

// TestTopicsOutliveTheirWorkers: a worker that dies loses no assignment, with synchronous steps and
// with asynchronous ones.
func TestTopicsOutliveTheirWorkers(t *testing.T) {
	for _, preset := range []string{"bsp", "async"} {
		x := newTable(t, "lda", 3)
		x.steps = 40
		cfg := x.live(t, 2)
		cfg.LeaveGrace = soon
		cfg.Consistency, _ = agg.Preset(preset)
		cfg.Consistency.Scale = agg.Sum
		wantCounted(t, x, run(t, cfg, func(l *Cluster) {
			until(t, l, 4)
			l.KillWorker(1)
			until(t, l, 9)
			l.StartWorker(1)
		}))
	}
}
