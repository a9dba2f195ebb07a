package cuda

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// pair mirrors Pair of kernel/norm.cu.
type pair struct {
	x, y   driver.Ptr
	n      uint64
	result driver.Ptr
}

type normArgs struct{ pairs driver.Ptr }

// finiteArgs mirrors FiniteArgs of kernel/finite.cu.
type finiteArgs struct {
	x     driver.Ptr
	n     uint64
	first driver.Ptr
}

// rowsArgs mirrors RowsArgs of kernel/rows.cu.
type rowsArgs struct {
	dst, values       driver.Ptr
	entry, begin, row driver.Ptr
	len               uint64
}

const (
	normThreads   = 256
	finiteThreads = 256
	perFinite     = 16 * finiteThreads
	rowThreads    = 128
)

// SquaredNorm implements kernels.Device.
func (d *Device) SquaredNorm(x []float32) (float64, error) { return d.norm(x, nil) }

// SquaredDistance implements kernels.Device.
func (d *Device) SquaredDistance(x, y []float32) (float64, error) {
	kernels.CheckPair(x, y)
	return d.norm(x, y)
}

func (d *Device) norm(x, y []float32) (float64, error) {
	if len(x) == 0 {
		return 0, nil
	}
	var result [1]float64
	err := d.do("norm", func(o *op) {
		p := pair{x: o.floats(x), y: o.floats(y), n: uint64(len(x)), result: resultOf(o, result[:])}
		launch(o, "norm", "norms", line(1), normThreads, &normArgs{pairs: table(o, []pair{p})})
	})
	return result[0], err
}

// Finite implements kernels.Device.
func (d *Device) Finite(x []float32) (int, error) {
	if len(x) == 0 {
		return -1, nil
	}
	first := [1]uint64{math.MaxUint64}
	err := d.do("finite", func(o *op) {
		args := finiteArgs{x: o.floats(x), n: uint64(len(x)), first: changedOf(o, first[:])}
		launch(o, "finite", "finite", line(ceil(len(x), perFinite)), finiteThreads, &args)
	})
	return int(first[0]), err // the largest uint64 becomes -1
}

// AddRows implements kernels.Device.
func (d *Device) AddRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	return d.rows("rows_add", dst, rowLen, rows, values)
}

// AssignRows implements kernels.Device.
func (d *Device) AssignRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	return d.rows("rows_assign", dst, rowLen, rows, values)
}

func (d *Device) rows(kernel string, dst []float32, rowLen int, rows []int32, values []float32) error {
	if err := kernels.CheckRows(dst, rowLen, rows, values); err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	entry, begin, row := sortRows(rows)
	return d.do(kernel, func(o *op) {
		args := rowsArgs{dst: o.changed(kernels.Bytes(dst)), values: o.floats(values), entry: table(o, entry), begin: table(o, begin), row: table(o, row), len: uint64(rowLen)}
		launch(o, "rows", kernel, line(len(row)), rowThreads, &args)
	})
}

// sortRows returns three lists: the entries, sorted by the row that they name and within a row in
// their order; the index at which the entries of each row begin, followed by the number of entries;
// and the rows, ascending.
func sortRows(rows []int32) (entry, begin, row []uint32) {
	entry = make([]uint32, len(rows))
	for i := range entry {
		entry[i] = uint32(i)
	}
	slices.SortStableFunc(entry, func(a, b uint32) int { return int(rows[a]) - int(rows[b]) })
	for i, e := range entry {
		if r := uint32(rows[e]); i == 0 || r != row[len(row)-1] {
			begin, row = append(begin, uint32(i)), append(row, r)
		}
	}
	return entry, append(begin, uint32(len(rows))), row
}
