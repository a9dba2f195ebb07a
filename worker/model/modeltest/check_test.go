package modeltest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// recorder is a testing.TB that collects what a check reports instead of failing.
type recorder struct {
	testing.TB
	said strings.Builder
}

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.said, format+"\n", args...) }
func (r *recorder) Error(args ...any)                 { fmt.Fprintln(&r.said, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); panic(r) }

// broken wraps a model and breaks one property of it.
type broken struct {
	model.Model
	spoil func(params, grads []float32, b model.Batch, calls int)
	calls int
}

func (m *broken) Gradient(params, grads []float32, b model.Batch) (float64, error) {
	before := append([]float32{}, grads...)
	loss, err := m.Model.Gradient(params, grads, b)
	if err == nil {
		m.calls++
		if m.spoil == nil {
			for i := range grads {
				grads[i] += before[i]
			}
		} else {
			m.spoil(params, grads, b, m.calls)
		}
	}
	return loss, err
}

// TestCheckFindsWhatItIsFor breaks a correct model in each way that the contract names.
func TestCheckFindsWhatItIsFor(t *testing.T) {
	in := model.Input{Channels: 1, Height: 3, Width: 3, Classes: 2}
	d, err := model.Lookup("mlr", in)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(d, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for name, c := range map[string]struct {
		spoil func(params, grads []float32, b model.Batch, calls int)
		want  string
	}{
		"nothing":       {func([]float32, []float32, model.Batch, int) {}, ""},
		"accumulates":   {nil, "not overwritten"},
		"has a state":   {func(_, grads []float32, _ model.Batch, calls int) { grads[3] *= 1 + float32(calls)*1e-6 }, "is now"},
		"writes params": {func(params, _ []float32, _ model.Batch, _ int) { params[1] = 1 }, "written to"},
		"wrong formula": {func(_, grads []float32, _ model.Batch, _ int) { grads[0] *= 1.001 }, "finite differences"},
	} {
		t.Run(name, func(t *testing.T) {
			params := make([]float32, d.Values())
			if err := d.Init(1, params); err != nil {
				t.Fatal(err)
			}
			r := &recorder{TB: t}
			func() {
				defer func() {
					if p := recover(); p != nil && p != any(r) {
						panic(p)
					}
				}()
				Check(r, &broken{Model: m, spoil: c.spoil}, Reference(d), params, RandomBatch(in, 2, 1))
			}()
			if said := r.said.String(); !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("a model that is spoiled: the check says %q, want %q", said, c.want)
			}
		})
	}
}
