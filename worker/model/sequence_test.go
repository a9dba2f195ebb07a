package model_test

import (
	"errors"
	"strings"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// tokens are sequences short enough for finite differences.
var tokens = model.Input{Channels: 1, Height: 1, Width: 7, Classes: 11, Sequence: true}

// block is a transformer block of odd size.
func block(name string, width, heads int) []model.Layer {
	return []model.Layer{
		model.Fork{}, model.LayerNorm{Name: name + "n1"}, model.Linear{Name: name + "qkv", Out: 3 * width}, model.Attention{Heads: heads},
		model.Linear{Name: name + "out", Out: width}, model.Join{},
		model.Fork{}, model.LayerNorm{Name: name + "n2"}, model.Linear{Name: name + "up", Out: 2*width + 1}, model.GELU{},
		model.Linear{Name: name + "down", Out: width}, model.Join{},
	}
}

// TestModelsOfSequencesComputeTheGradientOfTheirDescription has a batch that fits the graph, one that is padded
// and one that is computed in pieces.
func TestModelsOfSequencesComputeTheGradientOfTheirDescription(t *testing.T) {
	race.Skip(t)
	head := []model.Layer{model.LayerNorm{Name: "norm"}, model.Linear{Name: "head", Out: 11}}
	embedding := func(width int) []model.Layer { return []model.Layer{model.Embedding{Name: "e", Width: width}} }
	join := func(parts ...[]model.Layer) (all []model.Layer) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	onEachBLAS(t, func(t *testing.T) {
		for name, layers := range map[string][]model.Layer{
			"bigrams":         join(embedding(11)),
			"one block":       join(embedding(6), block("a/", 6, 2), head),
			"two, with noise": join(embedding(9), block("a/", 9, 3), []model.Layer{model.Dropout{Rate: 0.2}}, block("b/", 9, 1), head),
			"nested":          join(embedding(6), []model.Layer{model.Fork{}}, block("a/", 6, 3), []model.Layer{model.ReLU{}, model.Join{}}, head),
		} {
			t.Run(name, func(t *testing.T) {
				d, err := model.Describe("test", tokens, model.Defaults{}, layers...)
				if err != nil {
					t.Fatal(err)
				}
				modeltest.Check(t, open(t, d, 2), modeltest.Reference(d), initial(t, d, 1),
					modeltest.RandomBatch(tokens, 2, 1), modeltest.RandomBatch(tokens, 1, 2), modeltest.RandomBatch(tokens, 5, 3))
			})
		}
	})
}

// TestAPositionSeesNoLaterToken changes tokens from the end, and looks for the first position whose
// result changes.
func TestAPositionSeesNoLaterToken(t *testing.T) {
	layers := append([]model.Layer{model.Embedding{Name: "e", Width: 6}}, block("a/", 6, 2)...)
	d, err := model.Describe("test", tokens, model.Defaults{}, append(layers, model.Linear{Name: "head", Out: 11})...)
	if err != nil {
		t.Fatal(err)
	}
	m, params := open(t, d, 1), initial(t, d, 1)
	// The loss of a prefix is found by means of the labels: those after it change together.
	loss := func(b model.Batch) float64 {
		l, _, err := m.Evaluate(params, b)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	b := modeltest.RandomBatch(tokens, 1, 4)
	for position := range tokens.Width {
		// The difference between the losses of two labels at a position is a difference of logits,
		// which no later token may change.
		difference := func() float64 {
			with := b
			with.Y = append([]int32{}, b.Y...)
			with.Y[position] = 1
			one := loss(with)
			with.Y[position] = 2
			return one - loss(with)
		}
		before := difference()
		for later := position + 1; later < tokens.Width; later++ {
			b.X[later] = float32((int(b.X[later]) + 3) % tokens.Classes)
		}
		if after := difference(); after-before > 1e-6 || before-after > 1e-6 {
			t.Errorf("position %d: %v becomes %v when later tokens change", position, before, after)
		}
		b.X[position] = float32((int(b.X[position]) + 5) % tokens.Classes)
		if after := difference(); after == before {
			t.Errorf("position %d does not see its own token", position)
		}
	}
}

func TestDescribeRefusesSequencesItCannotCompute(t *testing.T) {
	e := model.Embedding{Name: "e", Width: 6}
	head := model.Linear{Name: "head", Out: 11}
	image := model.Input{Channels: 2, Height: 4, Width: 4, Classes: 3}
	for _, c := range []struct {
		in     model.Input
		layers []model.Layer
		want   string
	}{
		{tokens, []model.Layer{head}, "embedding"},
		{tokens, []model.Layer{model.Flatten{}, model.Dense{Name: "fc", Out: 11}}, "embedding"},
		{tokens, []model.Layer{e, e, head}, "first layer"},
		{image, []model.Layer{e}, "first layer"},
		{image, []model.Layer{model.GELU{}}, "matrix"},
		{tokens, []model.Layer{e, model.Attention{Heads: 4}, head}, "heads"},
		{tokens, []model.Layer{e, model.Join{}, head}, "not forked"},
		{tokens, []model.Layer{e, model.Fork{}, head}, "nothing joins"},
		{tokens, []model.Layer{e, model.Fork{}, head, model.Join{}}, "adds"},
		{tokens, []model.Layer{e}, "ends in"},
		{tokens, []model.Layer{e, model.Dense{Name: "fc", Out: 11}}, "ends in"},
		{tokens, []model.Layer{model.Embedding{Name: "e"}, head}, "0 values"},
		{tokens, []model.Layer{e, model.Linear{Name: "head"}}, "0 outputs"},
		{model.Input{Channels: 1, Height: 2, Width: 7, Classes: 11, Sequence: true}, []model.Layer{e, head}, "height 1"},
	} {
		_, err := model.Describe("test", c.in, model.Defaults{}, c.layers...)
		if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v with %v: %v; want a usage error that mentions %q", c.in, c.layers, err, c.want)
		}
	}
}

func TestCharlmIsOfTheSizeThatIsStated(t *testing.T) {
	d := lookup(t, "charlm", model.Input{Channels: 1, Height: 1, Width: 64, Classes: 65, Sequence: true})
	if d.Values() != 421697 {
		t.Errorf("charlm has %d parameters", d.Values())
	}
	for _, g := range d.Groups(model.Grouping{}) {
		if _, ok := g.Layer.(model.Fork); ok && len(g.Inside) != 4 {
			t.Errorf("the block of layer %d has %d layers inside, want 4", g.Index, len(g.Inside))
		}
	}
}

func TestAModelSaysWhatItIsFor(t *testing.T) {
	for name, in := range map[string]model.Input{"lenet": tokens, "charlm": {Channels: 1, Height: 28, Width: 28, Classes: 10}} {
		other := map[string]string{"lenet": "not for sequences; those that are: charlm", "charlm": "not for images; those that are: mlr"}[name]
		if _, err := model.Lookup(name, in); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), other) {
			t.Errorf("%s: %v; want a usage error that says %q", name, err, other)
		}
	}
}
