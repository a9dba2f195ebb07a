package model_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// described are the built-in models with layers, and one with layers that they lack.
func described(t *testing.T) map[string]*model.Description {
	t.Helper()
	all := map[string]*model.Description{"charlm": lookup(t, "charlm", model.Input{Channels: 1, Height: 1, Width: 8, Classes: 11, Sequence: true})}
	images := model.Input{Channels: 1, Height: 28, Width: 28, Classes: 10}
	for _, name := range []string{"mlr", "mlp", "lenet", "cnn"} {
		all[name] = lookup(t, name, images)
	}
	odd, err := model.Describe("odd", images, model.Defaults{},
		model.MaxPool{Size: 2}, model.Dropout{}, model.Conv2D{Name: "a", Filters: 3, Kernel: 3}, model.MaxPool{Size: 2}, model.ReLU{}, model.Dropout{Rate: 0.1},
		model.Conv2D{Name: "b", Filters: 2, Kernel: 2, Pad: 1}, model.ReLU{}, model.ReLU{}, model.MaxPool{Size: 3}, model.Flatten{}, model.Dense{Name: "c", Out: 10})
	if err != nil {
		t.Fatal(err)
	}
	all["odd"] = odd
	return all
}

// Groups are another form of a description: each layer that computes is in one of them, in order,
// and so is each parameter.
func TestGroupsAreTheLayersInOrder(t *testing.T) {
	for name, d := range described(t) {
		for _, o := range []model.Grouping{{}, {Pool: true}} {
			t.Run(fmt.Sprintf("%s/%v", name, o), func(t *testing.T) {
				var want, got []string
				for _, l := range d.Layers {
					if drop, ok := l.(model.Dropout); l != (model.Flatten{}) && !(ok && drop.Rate == 0) {
						want = append(want, fmt.Sprintf("%#v", l))
					}
				}
				next, tensors := 0, d.Tensors()
				eachGroup(d.Groups(o), func(g model.Group) {
					got = append(got, fmt.Sprintf("%#v", g.Layer))
					if g.ReLU {
						got = append(got, fmt.Sprintf("%#v", model.ReLU{}))
					}
					if g.Pool > 1 {
						got = append(got, fmt.Sprintf("%#v", model.MaxPool{Size: g.Pool}))
					}
					if g.Pool > 1 && !o.Pool {
						t.Errorf("layer %d has a pool with it, which nobody asked for", g.Index)
					}
					if g.Needed != (g.Params.Lo > 0) {
						t.Errorf("layer %d is behind %d parameters, and Needed is %v", g.Index, g.Params.Lo, g.Needed)
					}
					for _, s := range []model.Span{g.W, g.B} {
						if s.Len() == 0 {
							continue
						}
						if s.Lo != next || s.Len() != tensors[0].Values() {
							t.Errorf("layer %d has parameters %v, want %d from %d on", g.Index, s, tensors[0].Values(), next)
						}
						next, tensors = s.Hi, tensors[1:]
					}
				}, func() { got = append(got, fmt.Sprintf("%#v", model.Join{})) })
				if !slices.Equal(got, want) {
					t.Errorf("the groups have\n%v, want\n%v", got, want)
				}
				if next != d.Values() {
					t.Errorf("the groups have %d parameters of %d", next, d.Values())
				}
				fits(t, d.Groups(o), d.Shapes[0], d.Shapes[len(d.Layers)], model.Span{Hi: d.Values()})
			})
		}
	}
}

// eachGroup calls f for each group before the groups inside it, and joined after those.
func eachGroup(groups []model.Group, f func(model.Group), joined func()) {
	for _, g := range groups {
		f(g)
		if _, ok := g.Layer.(model.Fork); ok {
			eachGroup(g.Inside, f, joined)
			joined()
		}
	}
}

// fits checks that groups lead from one shape to another, and that their parameters are those of a
// span.
func fits(t *testing.T, groups []model.Group, in, out model.Shape, params model.Span) {
	t.Helper()
	at := params.Lo
	for _, g := range groups {
		if g.In.Values() != in.Values() || g.Params.Lo != at {
			t.Errorf("layer %d takes %v and parameters %v, behind %v and %d", g.Index, g.In, g.Params, in, at)
		}
		if g.Inside != nil {
			fits(t, g.Inside, g.In, g.Out, g.Params)
		}
		in, at = g.Out, g.Params.Hi
	}
	if in.Values() != out.Values() || at != params.Hi {
		t.Errorf("the groups end in %v and at parameter %d, want %v and %d", in, at, out, params.Hi)
	}
}
