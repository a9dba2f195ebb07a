//go:build gpu && cgo && linux

package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Bytes are those of the arrays: what an operation needs does not depend on the machine.
func TestARigCountsTheBytesThatMustMove(t *testing.T) {
	r, err := openTest(t).NewRig()
	if err != nil {
		t.Fatal(err)
	}
	const n = 2 * rigGrain
	for name, c := range map[string]struct {
		work     Work
		perValue float64
	}{
		"copy":                    {r.Copy(4 * n), 8},
		"adam of fp32":            {r.Step(kernels.Adam, kernels.FP32, 4, n+5), 40},
		"adam of int8":            {r.Step(kernels.Adam, kernels.Int8, 2, n), 26 + 2/64.},
		"momentum of sign":        {r.Step(kernels.Momentum, kernels.Sign, 1, n), 16 + 1/8. + 1/64.},
		"encode bf16":             {r.Encode(kernels.BF16, false, n), 14},
		"encode int8 at random":   {r.Encode(kernels.Int8, true, n), 13 + 1/64.},
		"select":                  {r.Select(0.25, false, n), 6},
		"select with feedback":    {r.Select(0.25, true, n), 14},
		"encode the largest":      {r.EncodeLargest(0.25, n), 12.75},
		"encode factors":          {r.EncodeLowRank(2, n), 12 + 8*(64+n/64)/float64(n)},
		"encode what is not zero": {r.EncodeNamed(0.25, n), 5.25},
		"distance":                {r.Distance(n), 8},
		"finite":                  {r.Finite(n), 4},
		"steps of several chunks": {r.Step(kernels.SGD, kernels.BF16, 1, 2*rigChunk+7), 10},
	} {
		if got := float64(c.work.Bytes) / float64(c.work.Values); math.Abs(got-c.perValue) > 1e-9 {
			t.Errorf("%s moves %v bytes for each value, want %v", name, got, c.perValue)
		}
		if s := r.Seconds(c.work, 2); !(s > 0) {
			t.Errorf("%s takes %v s, with the error %v", name, s, r.Err())
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// queued is a driver that notes what is queued.
type queued struct {
	driver.Context
	calls []string
}

func (q *queued) Launch(f driver.Function, blocks [3]int, threads int, s driver.Stream, args unsafe.Pointer, size uintptr) error {
	q.calls = append(q.calls, "launch")
	return q.Context.Launch(f, blocks, threads, s, args, size)
}

func (q *queued) Copy(to, from driver.Ptr, bytes int, s driver.Stream) error {
	q.calls = append(q.calls, "copy")
	return q.Context.Copy(to, from, bytes, s)
}

func (q *queued) Record(e driver.Event, s driver.Stream) error {
	q.calls = append(q.calls, "record")
	return q.Context.Record(e, s)
}

// An idle GPU reaches the first event before the host has queued what is timed, so the GPU must be
// busy meanwhile.
func TestAnOperationIsQueuedWhileTheGPUIsBusy(t *testing.T) {
	d := openTest(t)
	r, err := d.NewRig()
	if err != nil {
		t.Fatal(err)
	}
	w := r.Copy(1 << 12)
	q := &queued{Context: d.c}
	d.c = q
	r.Seconds(w, 2)
	d.c = q.Context
	if want := []string{"launch", "record", "copy", "copy", "record"}; !slices.Equal(q.calls, want) {
		t.Errorf("two copies are timed by %v, want %v", q.calls, want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatARigMeasuresHasOrdinaryValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		v := ordinary(rng)
		low := math.Float32frombits(math.Float32bits(v) << 16)
		if !(v < 0.01) || !(low < 0.01) {
			t.Fatalf("%v, and %v in its lower half, where both are to be ordinary", v, low)
		}
	}
}
