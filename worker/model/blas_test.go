package model_test

import (
	"os"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// TestMain runs the tests with the reference BLAS.
func TestMain(m *testing.M) {
	impl, err := blas.Open("gonum", 1)
	if err != nil {
		panic(err)
	}
	model.UseBLAS(impl)
	os.Exit(m.Run())
}

// onEachBLAS runs test with each BLAS that the machine has, the reference last, so that it stays in
// use. With -short it is the only one.
func onEachBLAS(t *testing.T, test func(t *testing.T)) {
	for _, name := range []string{"openblas", "mkl", "builtin", "gonum"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "gonum" {
				t.Skip("-short")
			}
			impl, err := blas.Open(name, 1)
			if err != nil {
				t.Skip(err)
			}
			model.UseBLAS(impl)
			test(t)
		})
	}
}
