package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

const (
	ringExamples = 600
	ringBatch    = 20
	hidden       = 16
)

// rings separates the points of an inner ring from those of an outer ring, which no straight line
// can do. It is a network with one hidden layer, written as a Gorgonia graph.
func rings() (job, error) {
	c := model.Custom{
		Name:  "rings",
		Input: model.Input{Channels: 1, Height: 1, Width: 2, Classes: 2}, // two numbers in, two classes out
		Tensors: []kintsugi.Tensor{
			{Name: "hidden/w", Shape: []int{2, hidden}}, {Name: "hidden/b", Shape: []int{1, hidden}},
			{Name: "out/w", Shape: []int{hidden, 2}}, {Name: "out/b", Shape: []int{1, 2}},
		},
		Logits: logits,
	}
	layout, err := kintsugi.NewLayout(c.Tensors)
	if err != nil {
		return job{}, err
	}
	x, y := ringPoints()
	return job{
		name:     "two rings",
		layout:   layout,
		start:    ringStart,
		gradient: func() (worker.Gradient, func() error, error) { return ringGradient(c, x, y) },
		rate:     0.05,
		steps:    100,
		judge:    func(params []float32) (string, error) { return ringAccuracy(c, params, x, y) },
	}, nil
}

// logits builds the graph. FromGorgonia adds the loss and the derivatives. x has a row for each
// example and the shape (batch, channels, height, width). params are in the order of Tensors.
func logits(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error) {
	x, err := gorgonia.Reshape(x, tensor.Shape{x.Shape()[0], 2})
	if err != nil {
		return nil, err
	}
	h, err := affine(x, params[0], params[1])
	if err != nil {
		return nil, err
	}
	if h, err = gorgonia.Rectify(h); err != nil {
		return nil, err
	}
	return affine(h, params[2], params[3])
}

// affine returns x·w + b, with the row vector b added to each row.
func affine(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	z, err := gorgonia.Mul(x, w)
	if err != nil {
		return nil, err
	}
	return gorgonia.BroadcastAdd(z, b, nil, []byte{0})
}

// ringStart draws random weights and leaves the biases at zero.
func ringStart(params []float32) {
	rng := rand.New(rand.NewPCG(3, 4))
	hiddenW, outW := params[:2*hidden], params[3*hidden:5*hidden]
	for i := range hiddenW {
		hiddenW[i] = 2*rng.Float32() - 1
	}
	for i := range outW {
		outW[i] = (2*rng.Float32() - 1) / 4 // 1/√hidden
	}
}

// ringGradient returns the gradient function of one worker. Only one goroutine may use a model, so
// each worker gets its own.
func ringGradient(c model.Custom, x []float32, y []int32) (worker.Gradient, func() error, error) {
	m, err := model.FromGorgonia(c, ringBatch)
	if err != nil {
		return nil, nil, err
	}
	sampler := data.Sampler{N: len(y), Batch: ringBatch, Slots: workers, Seed: 1}
	var chosen []int
	b := model.Batch{X: make([]float32, 2*ringBatch), Y: make([]int32, ringBatch), N: ringBatch}
	gradient := func(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		chosen = sampler.Indices(chosen, id.Slot, id.Version, id.Sequence)
		for j, i := range chosen {
			copy(b.X[2*j:], x[2*i:2*i+2])
			b.Y[j] = y[i]
		}
		loss, err := m.Gradient(params, grads, b)
		return loss, b.N, err
	}
	return gradient, m.Close, nil
}

// ringAccuracy says how many of all points the parameters classify correctly.
func ringAccuracy(c model.Custom, params, x []float32, y []int32) (string, error) {
	m, err := model.FromGorgonia(c, len(y))
	if err != nil {
		return "", err
	}
	defer m.Close()
	loss, correct, err := m.Evaluate(params, model.Batch{X: x, Y: y, N: len(y)})
	return fmt.Sprintf("%d of %d points right, loss %.4f", correct, len(y), loss), err
}

// ringPoints draws the examples: points at a distance of about 1 from the centre have class 0,
// those at about 2 class 1.
func ringPoints() (x []float32, y []int32) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range ringExamples {
		class := i % 2
		radius, angle := float64(1+class)+0.15*rng.NormFloat64(), 2*math.Pi*rng.Float64()
		x = append(x, float32(radius*math.Cos(angle)), float32(radius*math.Sin(angle)))
		y = append(y, int32(class))
	}
	return x, y
}
