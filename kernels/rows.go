package kernels

import "fmt"

// checkRows panics on lengths that do not fit and on overlapping memory, and returns an error if
// rows names a row that dst lacks. Call it before anything is written, so that a bad message
// changes nothing.
func checkRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	if rowLen <= 0 || len(dst)%rowLen != 0 || len(values) != len(rows)*rowLen {
		panic(fmt.Sprintf("kernels: %d rows of %d values, %d values given, into an array of %d", len(rows), rowLen, len(values), len(dst)))
	}
	if overlap(dst, values) {
		panic("kernels: the rows overlap the array they go to")
	}
	have := len(dst) / rowLen
	for i, r := range rows {
		if r < 0 || int(r) >= have {
			return fmt.Errorf("kernels: entry %d names row %d of an array of %d rows", i, r, have)
		}
	}
	return nil
}

func assignRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	if err := checkRows(dst, rowLen, rows, values); err != nil {
		return err
	}
	for i, r := range rows {
		copy(dst[int(r)*rowLen:][:rowLen], values[i*rowLen:])
	}
	return nil
}
