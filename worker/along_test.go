package worker

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

func TestGradientsAreMeasuredAlongTheDisplacementBetweenTheirVersions(t *testing.T) {
	codec, err := compress.Parse("topk:0.5")
	if err != nil {
		t.Fatal(err)
	}
	a := newAlong(codec, kintsugi.Pace{Along: true}, 2)
	id := func(version kintsugi.Step) kintsugi.PushID { return kintsugi.PushID{Line: 1, Version: version} }
	var grads []float32
	turn := func(version kintsugi.Step, params, next []float32, whole bool, own float64) kintsugi.Along {
		got := a.begin(id(version), params, grads)
		grads = next
		a.end(&got, id(version), params, grads, whole)
		a.own = own // as sent does
		return got
	}
	for _, step := range []struct {
		version kintsugi.Step
		params  []float32
		grads   []float32
		whole   bool
		own     float64
		want    kintsugi.Along
	}{
		{4, []float32{1, 1}, []float32{3, 5}, true, 9, kintsugi.Along{}}, // the first gradient: there is none before it
		{5, []float32{0, 3}, []float32{7, 1}, true, 2, kintsugi.Along{Known: true, Dot: -7 + 2, Earlier: true, Before: -3 + 10, Own: 9}},
		{6, []float32{2, 3}, []float32{9, 9}, false, 0, kintsugi.Along{}}, // given up
		{7, []float32{2, 4}, []float32{8, 6}, true, 1, kintsugi.Along{Known: true, Dot: 6}},
		{9, []float32{0, 0}, []float32{1, 1}, true, 1, kintsugi.Along{}}, // a version was skipped
		{10, []float32{0, 1}, []float32{1, 2}, true, 0, kintsugi.Along{Known: true, Dot: 2, Earlier: true, Before: 1, Own: 1}},
	} {
		if got := turn(step.version, step.params, step.grads, step.whole, step.own); got != step.want {
			t.Errorf("version %d: got %+v, want %+v", step.version, got, step.want)
		}
	}
	// A session that breaks after the gradient was begun leaves nothing useful in its memory.
	a.begin(id(11), []float32{1, 1}, grads)
	if got := a.begin(id(11), []float32{1, 1}, grads); !got.Known || got.Earlier {
		t.Errorf("after a gradient that was begun and not ended: %+v", got)
	}
	if got := a.begin(kintsugi.PushID{Line: 2, Version: 11}, []float32{1, 1}, grads); got.Known {
		t.Errorf("on another line: %+v", got)
	}
	for _, spec := range []string{"fp32", "bf16", "int8"} {
		c, err := compress.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		if newAlong(c, kintsugi.Pace{Along: true}, 2) != nil {
			t.Errorf("%s: its messages are as good as gradients", spec)
		}
	}
	if newAlong(codec, kintsugi.Pace{}, 2) != nil || newAlong(nil, kintsugi.Pace{Along: true}, 2) != nil {
		t.Error("it is measured where nobody asks")
	}
}
