package kernelstest

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

func testNorms(t *testing.T, d kernels.Device) {
	sizes := []int{511, 512, 513, bulk, 65536 + 9}
	for n := range 71 {
		sizes = append(sizes, n)
	}
	for kind := range kinds {
		for _, n := range sizes {
			rng := rand.New(rand.NewPCG(uint64(n), uint64(kind)))
			x, y := make([]float32, n+3)[n%4:][:n], make([]float32, n) // x at every alignment
			for i := range x {
				x[i], y[i] = value(rng, kind), value(rng, kind)
			}
			got, err := d.SquaredNorm(x)
			want, _ := kernels.Host.SquaredNorm(x)
			sameFloat64(t, d, "SquaredNorm", n, got, want, err)
			got, err = d.SquaredDistance(x, y)
			want, _ = kernels.Host.SquaredDistance(x, y)
			sameFloat64(t, d, "SquaredDistance", n, got, want, err)
		}
	}
}

func sameFloat64(t *testing.T, d kernels.Device, name string, n int, got, want float64, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %s of %d values: %v", d.Name(), name, n, err)
	}
	if math.Float64bits(got) != math.Float64bits(want) && !bothNaN(got, want) {
		t.Fatalf("%s: %s of %d values is %v, host has %v", d.Name(), name, n, got, want)
	}
}

// testFinite puts one bad value at each index of arrays that are otherwise finite, but not
// ordinary.
func testFinite(t *testing.T, d kernels.Device) {
	find := func(x []float32, want int) {
		t.Helper()
		if got, err := d.Finite(x); err != nil || got != want {
			t.Fatalf("%s: Finite of %d values found %d, %v; want %d", d.Name(), len(x), got, err, want)
		}
	}
	find(nil, -1)
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff)}
	fine := []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1}
	for _, n := range []int{1, 15, 16, 17, 70, 512, 1024 + 21} {
		x := make([]float32, n)
		for i := range x {
			x[i] = fine[i%len(fine)]
		}
		find(x, -1)
		for i := range x {
			x[i] = bad[i%len(bad)]
			find(x, i)
			last := x[n-1]
			x[n-1] = bad[0] // the first one counts
			find(x, i)
			x[n-1] = last
			x[i] = 2
		}
	}
}

// testRows compares with Host and checks the memory around the arrays.
func testRows(t *testing.T, d kernels.Device) {
	rng := rand.New(rand.NewPCG(5, 6))
	for rowLen := 1; rowLen < 40; rowLen++ {
		for kind := range kinds {
			const have = 9
			b := new(built)
			dst := b.array("dst", rng, shape{n: have * rowLen, offset: rowLen % 5, kind: kind})
			rows := make([]int32, rng.IntN(14)) // some rows more than once
			for i := range rows {
				rows[i] = rng.Int32N(have)
			}
			values := b.array("values", rng, shape{n: len(rows) * rowLen, kind: kind})
			want := append([]float32(nil), dst...)
			for i, r := range rows {
				for j := range rowLen {
					want[int(r)*rowLen+j] += values[i*rowLen+j]
				}
			}
			sameRows(t, d, "AddRows", b, dst, want, d.AddRows(dst, rowLen, rows, values), false)
			for i, r := range rows {
				copy(want[int(r)*rowLen:][:rowLen], values[i*rowLen:])
			}
			copy(dst, want)
			for i := range rows {
				dst[int(rows[i])*rowLen] = 77
			}
			sameRows(t, d, "AssignRows", b, dst, want, d.AssignRows(dst, rowLen, rows, values), true)
		}
	}
	testBadRows(t, d)
}

func sameRows(t *testing.T, d kernels.Device, name string, b *built, dst, want []float32, err error, exact bool) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %s: %v", d.Name(), name, err)
	}
	for i := range want {
		if !equal(dst[i], want[i]) && (exact || !bothNaN(float64(dst[i]), float64(want[i]))) {
			t.Fatalf("%s: %s: value %d of %d is %v, want %v", d.Name(), name, i, len(dst), dst[i], want[i])
		}
	}
	for _, a := range b.arrays {
		for j, v := range a.all {
			if (j < a.lo || j >= a.lo+a.n) && !equal(v, guard) {
				t.Fatalf("%s: %s wrote %d values from the start of %s", d.Name(), name, j-a.lo, a.name)
			}
		}
	}
}

// testBadRows shows that an index out of range is an error that names the index, and that it
// changes nothing.
func testBadRows(t *testing.T, d kernels.Device) {
	for name, op := range map[string]func([]float32, int, []int32, []float32) error{"AddRows": d.AddRows, "AssignRows": d.AssignRows} {
		for _, bad := range []int32{-1, 3, math.MaxInt32, math.MinInt32} {
			dst := []float32{1, 2, 3, 4, 5, 6}
			err := op(dst, 2, []int32{0, bad}, []float32{9, 9, 9, 9})
			if err == nil || !strings.Contains(err.Error(), "entry 1 ") || dst[0] != 1 {
				t.Errorf("%s: %s of row %d of 3: error %v and first value %v; want an error that names entry 1 and the old value 1", d.Name(), name, bad, err, dst[0])
			}
		}
		if err := op(nil, 4, nil, nil); err != nil {
			t.Errorf("%s: %s of no rows: %v", d.Name(), name, err)
		}
		for _, wrong := range []func(){
			func() { op(make([]float32, 6), 0, nil, nil) },
			func() { op(make([]float32, 7), 2, nil, nil) },
			func() { op(make([]float32, 6), 2, []int32{0}, make([]float32, 3)) },
			func() { x := make([]float32, 6); op(x, 2, []int32{0}, x[4:]) },
		} {
			if !panics(wrong) {
				t.Errorf("%s: %s with lengths that do not fit or memory that overlaps does not panic", d.Name(), name)
			}
		}
	}
}
