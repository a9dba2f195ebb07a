package model_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// composed is a convolutional network in Gorgonia's own operations, with its description.
func composed(t *testing.T) (model.Custom, *model.Description) {
	t.Helper()
	d, err := model.Describe("composed", model.Input{Channels: 2, Height: 8, Width: 8, Classes: 3}, model.Defaults{},
		model.Conv2D{Name: "conv", Filters: 3, Kernel: 3, Pad: 1}, model.ReLU{}, model.MaxPool{Size: 2},
		model.Flatten{}, model.Dense{Name: "fc", Out: 3})
	if err != nil {
		t.Fatal(err)
	}
	return model.Custom{Name: "composed", Input: d.Input, Tensors: d.Tensors(),
		Logits: func(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error) {
			batch := x.Shape()[0]
			z := gorgonia.Must(gorgonia.Conv2d(x, params[0], tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
			bias := gorgonia.Must(gorgonia.Reshape(params[1], tensor.Shape{1, 3, 1, 1}))
			z = gorgonia.Must(gorgonia.BroadcastAdd(z, bias, nil, []byte{0, 2, 3}))
			z = gorgonia.Must(gorgonia.Rectify(z))
			z = gorgonia.Must(gorgonia.MaxPool2D(z, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
			z = gorgonia.Must(gorgonia.Reshape(z, tensor.Shape{batch, 3 * 4 * 4}))
			return linear(z, params[2], params[3])
		}}, d
}

// linear is x·w + b in Gorgonia's own operations.
func linear(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	z, err := gorgonia.Mul(x, w)
	if err != nil {
		return nil, err
	}
	row, err := gorgonia.Reshape(b, tensor.Shape{1, b.Shape()[0]})
	if err != nil {
		return nil, err
	}
	return gorgonia.BroadcastAdd(z, row, nil, []byte{0})
}

func openCustom(t *testing.T, c model.Custom, batch int) model.Model {
	t.Helper()
	m, err := model.FromGorgonia(c, batch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestAUsersGraphKeepsTheContract shows that callers are safe from two of Gorgonia's traps: the
// missing Reset, and derivatives that are not set to zero.
func TestAUsersGraphKeepsTheContract(t *testing.T) {
	c, d := composed(t)
	modeltest.Check(t, openCustom(t, c, 4), modeltest.Reference(d), initial(t, d, 1),
		modeltest.RandomBatch(d.Input, 4, 1), modeltest.RandomBatch(d.Input, 6, 2))
}

// TestSoftMaxInAUsersGraphIsNotMergedWithTheLoss: Gorgonia returns the node of a SoftMax if the
// LogSoftMax of the same input is asked for.
func TestSoftMaxInAUsersGraphIsNotMergedWithTheLoss(t *testing.T) {
	in := model.Input{Channels: 1, Height: 1, Width: 4, Classes: 3}
	m := openCustom(t, model.Custom{Name: "softmax", Input: in, Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{4, 3}}, {Name: "b", Shape: []int{3}}},
		Logits: func(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error) {
			x = gorgonia.Must(gorgonia.Reshape(x, tensor.Shape{x.Shape()[0], 4}))
			z := gorgonia.Must(linear(x, params[0], params[1]))
			return gorgonia.SoftMax(z)
		}}, 2)
	softmax := func(z []float64) []float64 {
		p, sum := make([]float64, len(z)), 0.0
		for _, v := range z {
			sum += math.Exp(v)
		}
		for j, v := range z {
			p[j] = math.Exp(v) / sum
		}
		return p
	}
	oracle := func(params []float64, b model.Batch, _ bool) (loss float64, correct int) {
		for i := range b.N {
			z := []float64{params[12], params[13], params[14]}
			for k, x := range b.X[4*i : 4*i+4] {
				for j := range z {
					z[j] += float64(x) * params[3*k+j]
				}
			}
			p := softmax(softmax(z)) // the network's own, and the loss's
			loss -= math.Log(p[b.Y[i]]) / float64(b.N)
			if p[b.Y[i]] == max(p[0], p[1], p[2]) {
				correct++
			}
		}
		return loss, correct
	}
	params := make([]float32, 15)
	for i := range params {
		params[i] = float32(i*i%11)/5 - 1
	}
	modeltest.Check(t, m, oracle, params, modeltest.RandomBatch(in, 2, 5))
}

// TestModelsThatAreDroppedAreFreed: a finalizer in Gorgonia's machine would keep the graph, which
// takes megabytes, for ever.
func TestModelsThatAreDroppedAreFreed(t *testing.T) {
	c, d := composed(t)
	params, grads := initial(t, d, 1), make([]float32, d.Values())
	for name, build := range map[string]func() (model.Model, error){
		"described": func() (model.Model, error) { return model.New(d, 2) },
		"custom":    func() (model.Model, error) { return model.FromGorgonia(c, 2) },
		"custom, read into a struct that holds the model": func() (m model.Model, err error) {
			var user struct {
				model  model.Model
				logits gorgonia.Value
			}
			c := c
			logits := c.Logits
			c.Logits = func(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error) {
				z, err := logits(x, params)
				gorgonia.Read(z, &user.logits)
				return z, err
			}
			user.model, err = model.FromGorgonia(c, 2)
			return user.model, err
		},
	} {
		// The weak pointer is to an array that only the model's graphs refer to.
		drop := func() weak.Pointer[[1 << 16]byte] {
			m, err := build()
			if err != nil {
				t.Fatal(err)
			}
			b := modeltest.RandomBatch(d.Input, 3, 1)
			if _, err := m.Gradient(params, grads, b); err != nil {
				t.Fatal(err)
			}
			if _, _, err := m.Evaluate(params, b); err != nil {
				t.Fatal(err)
			}
			witness := new([1 << 16]byte)
			model.Attach(m, witness)
			return weak.Make(witness)
		}
		p := drop()
		for range 3 {
			runtime.GC()
		}
		if p.Value() != nil {
			t.Errorf("a %s model is still in memory after it was dropped", name)
		}
	}
}

// TestModelsAreBuiltAndRunConcurrently is for the race detector.
func TestModelsAreBuiltAndRunConcurrently(t *testing.T) {
	c, d := composed(t)
	params, b := initial(t, d, 1), modeltest.RandomBatch(d.Input, 3, 1)
	var losses [4]float64
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range losses {
		group.Go(func() {
			<-start
			for range 5 {
				m, err := model.FromGorgonia(c, 3)
				if err != nil {
					t.Error(err)
					return
				}
				losses[i], err = m.Gradient(params, make([]float32, len(params)), b)
				if err := errors.Join(err, m.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	group.Wait()
	for i, l := range losses {
		if l != losses[0] {
			t.Errorf("model %d computes loss %v, model 0 %v", i, l, losses[0])
		}
	}
}

func TestAPanicWhileAGraphIsBuiltIsAnError(t *testing.T) {
	c, _ := composed(t)
	c.Logits = func(x *gorgonia.Node, _ []*gorgonia.Node) (*gorgonia.Node, error) {
		panic("shapes do not fit")
	}
	if _, err := model.FromGorgonia(c, 2); err == nil || !strings.Contains(err.Error(), "shapes do not fit") {
		t.Errorf("got %v, want the panic as an error", err)
	}
	c.Logits = func(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error) { return x, nil }
	if _, err := model.FromGorgonia(c, 2); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("logits of the wrong shape: got %v, want a usage error", err)
	}
}

func TestAClosedModelSaysSo(t *testing.T) {
	_, d := composed(t)
	m, err := model.New(d, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	params := initial(t, d, 1)
	if _, err := m.Gradient(params, make([]float32, len(params)), modeltest.RandomBatch(d.Input, 2, 1)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v, want an error that says the model is closed", err)
	}
}
