//go:build gpu && cgo && linux

package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// hasCuBLAS reports whether there is a cuBLAS. The emulation has one; a machine with a driver and
// nothing else has none.
func hasCuBLAS(t testing.TB) bool {
	t.Helper()
	_, err := cuda.FindBLAS(emulate.Library(t))
	if err != nil && !emulate.OnGPU() {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("nothing is asked of cuBLAS: %v", err)
	}
	return err == nil
}

// withCuBLAS returns options for products by cuBLAS.
func withCuBLAS(t testing.TB) engine.Options {
	t.Helper()
	return engine.Options{Products: engine.CuBLAS, Library: emulate.Library(t)}
}

// small is a model with a product of every kind: of dense layers and of a batch of images.
func small(t *testing.T) (*model.Description, []float32, model.Batch) {
	t.Helper()
	d, err := model.Describe("test", images, model.Defaults{}, conv("a", 3, 3, 1), model.ReLU{}, model.Flatten{}, model.Dense{Name: "b", Out: 9}, model.ReLU{}, model.Dense{Name: "c", Out: 5})
	if err != nil {
		t.Fatal(err)
	}
	return d, initial(t, d), modeltest.RandomBatch(images, 3, 3)
}

// gradients computes the same gradient n times.
func gradients(t *testing.T, e *engine.Engine, params []float32, b model.Batch, times int) []float32 {
	t.Helper()
	first := make([]float32, len(params))
	for i := range times {
		g := make([]float32, len(params))
		if _, err := e.Gradient(params, g, b); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			copy(first, g)
		} else if !slices.Equal(g, first) {
			t.Errorf("%v: gradient number %d has other bits than the first", e, i)
		}
	}
	return first
}

// The emulated library has other bits than the kernels, which shows what has multiplied.
func TestCuBLASMultipliesWhereItIsAskedTo(t *testing.T) {
	if !hasCuBLAS(t) {
		return
	}
	d, params, b := small(t)
	own, library := open(t, d, engine.Options{}), open(t, d, withCuBLAS(t))
	options := withCuBLAS(t)
	options.Products = engine.Fastest
	fastest := open(t, d, options)
	const times = 4
	x, y, z := gradients(t, own, params, b, times), gradients(t, library, params, b, times), gradients(t, fastest, params, b, times)
	if !emulate.OnGPU() && slices.Equal(x, y) {
		t.Error("the gradient with cuBLAS has the bits of the kernels: it was not asked")
	}
	if !slices.Equal(y, z) {
		t.Error("the fastest products have other bits than cuBLAS's, which is there")
	}
	if library.Replayed() != times-1 {
		t.Errorf("%d of %d gradients were computed in one launch, want all but the first: %v", library.Replayed(), times, library.Eager())
	}
	if s := library.String(); !strings.Contains(s, "products by cuBLAS ") {
		t.Errorf("the engine calls itself %q", s)
	}
	if s := own.String(); !strings.HasSuffix(s, "products by kernels of this program") {
		t.Errorf("the engine without cuBLAS calls itself %q", s)
	}
}

// The lower the precision, the farther the gradient is from that of float32.
func TestFactorsAreRoundedWhereThatIsAskedFor(t *testing.T) {
	d, params, b := small(t)
	all := []engine.Options{{}}
	if !emulate.OnGPU() { // NVIDIA's library need not round if that does not make it faster
		all = append(all, withCuBLAS(t))
	}
	for _, o := range all {
		exact := gradients(t, open(t, d, o), params, b, 1)
		least := 1e-5
		for _, o.Precision = range []cuda.Precision{cuda.TF32, cuda.BF16} {
			e := open(t, d, o)
			far := modeltest.Distance(gradients(t, e, params, b, 3), exact)
			if far < least {
				t.Errorf("%v: the gradient is %.2g from that of float32, want at least %.2g", e, far, least)
			}
			if !strings.HasSuffix(e.String(), ", "+o.Precision.String()) {
				t.Errorf("with products in %v the engine calls itself %q", o.Precision, e)
			}
			least = 3 * far
		}
	}
}

// Calls that cannot be captured are made each time, with the same bits.
func TestACuBLASThatCannotBeCapturedIsCalledEachTime(t *testing.T) {
	if emulate.OnGPU() {
		t.Skip("only the emulated cuBLAS can be made to refuse; run it without -real")
	}
	d, params, b := small(t)
	captured := gradients(t, open(t, d, withCuBLAS(t)), params, b, 2)
	t.Setenv(emulate.CuBLAS, "uncaptured")
	e := open(t, d, withCuBLAS(t))
	if got := gradients(t, e, params, b, 4); !slices.Equal(got, captured) {
		t.Error("the gradient has other bits than in a program")
	}
	if e.Replayed() != 0 || e.Eager() == nil || !strings.Contains(e.Eager().Error(), "CUBLAS_STATUS_EXECUTION_FAILED") {
		t.Errorf("%d gradients were computed in one launch, by a library that refuses: %v", e.Replayed(), e.Eager())
	}
}

func TestACuBLASThatIsNotThereIsNamed(t *testing.T) {
	if emulate.OnGPU() {
		t.Skip("only the emulated cuBLAS can be made to fail; run it without -real")
	}
	d, params, b := small(t)
	own := gradients(t, open(t, d, engine.Options{}), params, b, 1)
	for _, c := range []struct{ library, does, want string }{
		{"/no/such/libcublas.so.12", "", "the system finds none of /no/such/libcublas.so.12"},
		{"libdl.so.2", "", "libdl.so.2 has no cublasCreate_v2"},
		{emulate.Library(t), "none", "cublasCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Setenv(emulate.CuBLAS, c.does)
			if _, err := engine.New(d, openDevice(t), engine.Options{Products: engine.CuBLAS, Library: c.library}); !errors.Is(err, cuda.ErrNoBLAS) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want ErrNoBLAS with %q", err, c.want)
			}
			e := open(t, d, engine.Options{Products: engine.Fastest, Library: c.library})
			if s := e.Products(); !strings.HasPrefix(s, "kernels of this program (") || !strings.Contains(s, c.want) {
				t.Errorf("products are by %q; want why it is not cuBLAS: %q", s, c.want)
			}
			if !slices.Equal(gradients(t, e, params, b, 1), own) {
				t.Error("without cuBLAS the gradient has other bits than with the kernels")
			}
		})
	}
}

// Of the kernels of layers, those that sum rows have barriers.
func TestEveryBarrierIsNeeded(t *testing.T) {
	emulate.EveryBarrierIsNeeded(t, map[string]string{"layer": "ModelsCompute"})
}
