package cluster

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
)

// Question: does distributing the training over workers and servers cost quality? Each algorithm is
// implemented here again as in a textbook: one process, one loop, float64, an ordinary random
// generator. It shares nothing with train except the examples, the initial parameters, and the
// layers of networks.

// PlainConfig configures Plain.
type PlainConfig struct {
	Desc     *models.Description
	Set      *data.Set
	Layout   *kintsugi.Layout // of the model, with the rates of tensors
	Seed     uint64
	Workers  int // number of gradients per step
	Batch    int // number of examples of a gradient
	Steps    int
	Schedule conductor.Schedule
	ClipNorm float64 // longest norm that a gradient counts with; 0: any
}

// Plain trains a model in one loop and returns its parameters, in the order that train uses.
func Plain(ctx context.Context, cfg PlainConfig) ([]float32, error) {
	params := make([]float32, cfg.Desc.Values())
	if err := cfg.Desc.Init(cfg.Seed, params); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x706c61696e))
	switch d := cfg.Desc; {
	case d.Topics != nil:
		return plainTopics(ctx, *d.Topics, cfg.Set.Corpus.Train, cfg.Steps, rng)
	case d.Factors != nil && d.Factors.Alternate:
		return plainAlternate(ctx, *d.Factors, cfg.Set.Train.(*data.Ratings), cfg.Steps, params)
	case d.Factors != nil:
		f, ratings := *d.Factors, cfg.Set.Train.(*data.Ratings)
		return cfg.descend(ctx, rng, params, func(x []float64, batch []int, g []float64) error {
			plainFactors(f, ratings, x, batch, g)
			return nil
		})
	case len(d.Layers) > 0:
		return cfg.network(ctx, rng, params)
	}
	return nil, fmt.Errorf("%w: model %s has no data to be good on", kintsugi.ErrUsage, cfg.Desc.Name)
}

// network trains a network; the engine computes its gradients.
func (cfg *PlainConfig) network(ctx context.Context, rng *rand.Rand, params []float32) ([]float32, error) {
	m, err := engine.New(cfg.Desc, engine.Options{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	train := cfg.Set.Train
	b := models.Batch{N: cfg.Batch, X: make([]float32, cfg.Batch*train.Values()), Y: make([]int32, cfg.Batch*train.Labels())}
	at, grads := make([]float32, len(params)), make([]float32, len(params))
	return cfg.descend(ctx, rng, params, func(x []float64, batch []int, g []float64) error {
		for i, v := range x {
			at[i] = float32(v)
		}
		train.Fill(b.X, b.Y, batch)
		b.Seed = rng.Uint64()
		if _, err := m.Gradient(at, grads, b); err != nil {
			return err
		}
		for i, v := range grads {
			g[i] = float64(v)
		}
		return nil
	})
}

// descend trains by gradients with the optimizer of the schedule: each step is the mean of the
// gradients of all workers, each clipped. Each epoch has another order of examples.
func (cfg *PlainConfig) descend(ctx context.Context, rng *rand.Rand, params []float32, gradient func(x []float64, batch []int, g []float64) error) ([]float32, error) {
	n := len(params)
	x, g, mean, m, v := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i, p := range params {
		x[i] = float64(p)
	}
	var order []int
	batch := make([]int, cfg.Batch)
	for step := range cfg.Steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		clear(mean)
		for range cfg.Workers {
			for i := range batch {
				if len(order) == 0 {
					order = rng.Perm(cfg.Set.Train.Len())
				}
				batch[i], order = order[0], order[1:]
			}
			if err := gradient(x, batch, g); err != nil {
				return nil, err
			}
			floats.AddScaled(mean, cfg.clipped(g)/float64(cfg.Workers), g)
		}
		lo := 0
		for i, t := range cfg.Layout.Tensors {
			hi := lo + t.Values()
			if err := cfg.move(step, i, x[lo:hi], mean[lo:hi], m[lo:hi], v[lo:hi]); err != nil {
				return nil, err
			}
			lo = hi
		}
	}
	for i, p := range x {
		params[i] = float32(p)
	}
	return params, nil
}

// clipped returns the factor that clips a gradient.
func (cfg *PlainConfig) clipped(g []float64) float64 {
	if norm := floats.Norm(g, 2); cfg.ClipNorm > 0 && norm > cfg.ClipNorm {
		return cfg.ClipNorm / norm
	}
	return 1
}

// move makes a step of the optimizer on a tensor; m and v are its state. It overwrites g.
func (cfg *PlainConfig) move(step, tensor int, x, g, m, v []float64) error {
	o := cfg.Schedule.At(kintsugi.Step(step) + 1)
	rate := float64(o.LearningRate) * float64(cfg.Layout.Rate(tensor))
	floats.AddScaled(g, float64(o.WeightDecayOf(cfg.Layout.Tensors[tensor])), x)
	switch cfg.Schedule.Rule {
	case kintsugi.RuleSGD:
		for i := range x {
			x[i] -= rate * g[i]
		}
	case kintsugi.RuleMomentum:
		for i := range x {
			m[i] = float64(o.Momentum)*m[i] + g[i]
			x[i] -= rate * m[i]
		}
	case kintsugi.RuleAdagrad:
		for i := range x {
			m[i] += g[i] * g[i]
			x[i] -= rate * g[i] / (math.Sqrt(m[i]) + float64(o.Epsilon))
		}
	case kintsugi.RuleAdam:
		b1, b2, t := float64(o.Beta1), float64(o.Beta2), float64(step+1)
		for i := range x {
			m[i] = b1*m[i] + (1-b1)*g[i]
			v[i] = b2*v[i] + (1-b2)*g[i]*g[i]
			x[i] -= rate * m[i] / (1 - math.Pow(b1, t)) / (math.Sqrt(v[i]/(1-math.Pow(b2, t))) + float64(o.Epsilon))
		}
	default:
		return fmt.Errorf("%w: a plain loop knows sgd, momentum, adagrad and adam, not rule %d", kintsugi.ErrUsage, cfg.Schedule.Rule)
	}
	return nil
}
