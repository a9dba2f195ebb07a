package blas_test

import (
	"fmt"

	gonumblas "gonum.org/v1/gonum/blas"

	"github.com/kintsugi-ml/kintsugi/kernels/blas"
)

func ExampleOpen() {
	b, err := blas.Open("gonum", 1) // "auto" takes the fastest that the machine has
	if err != nil {
		fmt.Println(err)
		return
	}
	x := []float32{ // 2 × 3
		1, 2, 3,
		4, 5, 6,
	}
	w := []float32{ // 3 × 2
		1, 0,
		0, 1,
		1, 1,
	}
	y := make([]float32, 4)
	b.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 3, 1, x, 3, w, 2, 0, y, 2)
	fmt.Println(y)
	// Output: [4 5 10 11]
}
