package model

import (
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// denseStage is a Dense layer, with the following ReLU if there is one: y = max(0, x·w + b).
type denseStage struct {
	batch, in, out int
	relu           bool
	dz             []float32 // batch × out; allocated by the first backward
}

func (s *denseStage) forward(y []float32, in [][]float32) {
	x, w, b := in[0], in[1], in[2]
	for lo := 0; lo < len(y); lo += s.out {
		copy(y[lo:], b)
	}
	gorgonia.WhichBLAS().Sgemm(blas.NoTrans, blas.NoTrans, s.batch, s.out, s.in, 1, x, s.in, w, s.out, 1, y, s.out)
	if s.relu {
		rectify(y, y)
	}
}

func (s *denseStage) backward(d, in [][]float32, y, dy []float32) {
	x, w := in[0], in[1]
	dz := dy
	if s.relu {
		if s.dz == nil {
			s.dz = make([]float32, s.batch*s.out)
		}
		dz = s.dz
		rectifyGradient(dz, y, dy)
	}
	lib := gorgonia.WhichBLAS()
	if dx := d[0]; dx != nil {
		lib.Sgemm(blas.NoTrans, blas.Trans, s.batch, s.in, s.out, 1, dz, s.out, w, s.out, 0, dx, s.in)
	}
	lib.Sgemm(blas.Trans, blas.NoTrans, s.in, s.out, s.batch, 1, x, s.in, dz, s.out, 0, d[1], s.out)
	db := d[2]
	clear(db)
	for lo := 0; lo < len(dz); lo += s.out {
		for j, v := range dz[lo : lo+s.out] {
			db[j] += v
		}
	}
}
