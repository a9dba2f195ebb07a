package job

import (
	"errors"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

func TestDevicesAreWritten(t *testing.T) {
	for s, want := range map[string]GPU{
		"cpu":                {},
		"auto":               {unnamed: true, products: engine.Fastest},
		"cuda":               {Wanted: true, unnamed: true, products: engine.Fastest},
		"cuda:3":             {Wanted: true, Ordinal: 3, products: engine.Fastest},
		"cuda,tf32":          {Wanted: true, unnamed: true, precision: cuda.TF32, products: engine.Fastest},
		"cuda,bf16":          {Wanted: true, unnamed: true, precision: cuda.BF16, products: engine.Fastest},
		"cuda:1,tf32":        {Wanted: true, Ordinal: 1, precision: cuda.TF32, products: engine.Fastest},
		"cuda,ptx":           {Wanted: true, unnamed: true},
		"cuda,ptx,bf16":      {Wanted: true, unnamed: true, precision: cuda.BF16},
		"cuda:2,cublas,tf32": {Wanted: true, Ordinal: 2, precision: cuda.TF32, products: engine.CuBLAS},
		"cuda,bf16,cublas":   {Wanted: true, unnamed: true, precision: cuda.BF16, products: engine.CuBLAS},
	} {
		if got, err := ParseDevice(s); err != nil || got != want {
			t.Errorf("%q is %+v, error %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda,fp8", "cpu,tf32", "auto,tf32", "cuda:999", "cuda,", "cuda,ptx,cublas", "cuda,tf32,tf32", "cuda,tf32,bf16", "cpu,bf16", "cuda,cublas,"} {
		if got, err := ParseDevice(s); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q is %+v, error %v; want ErrUsage", s, got, err)
		}
	}
}

// numbers is a data set in which example i has one value: i.
type numbers int

func (n numbers) Len() int { return int(n) }

func (numbers) Values() int { return 1 }

func (numbers) Labels() int { return 1 }

func (numbers) Fill(x []float32, y []int32, indices []int) {
	for i, j := range indices {
		x[i], y[i] = float32(j), int32(j)
	}
}

// stager is a model that accepts batches ahead of time.
type stager struct {
	model.Model
	batches chan model.Batch
}

func (s stager) Stage(b model.Batch) { s.batches <- b }

// A staged batch is the one of which the next gradient is computed, with the same seed and in the
// same memory. Otherwise the model would not recognise it.
func TestTheBatchThatIsStagedComesNext(t *testing.T) {
	sampler := data.Sampler{N: 50, Batch: 6, Slots: 3, Seed: 9}
	loader, s := data.NewLoader(sampler, numbers(50)), stager{batches: make(chan model.Batch, 1)}
	defer loader.Close()
	stageAhead(loader, sampler, s)
	loader.Batch(1, 0, 0)
	for version := kintsugi.Step(1); version < 5; version++ {
		b := <-s.batches
		x, y := loader.Batch(1, version, 0)
		if &b.X[0] != &x[0] || &b.Y[0] != &y[0] || b.N != sampler.Batch || b.Seed != sampler.Seed64(1, version, 0) {
			t.Fatalf("version %d: another batch was staged than is returned", version)
		}
	}
}
