package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// selectLargest is Select without carry and residual.
func selectLargest(index []int32, value, y []float32) {
	least, ties := kthMagnitude(y, len(index))
	j := 0
	for i, v := range y {
		m := magnitude(v)
		if m < least || m == least && ties == 0 {
			continue
		}
		if m == least {
			ties--
		}
		index[j], value[j] = int32(i), v
		j++
	}
}

// magnitude orders finite values as |v| does.
func magnitude(v float32) uint32 { return math.Float32bits(v) & 0x7fffffff }

// kthMagnitude returns the k-th largest magnitude in y, 0 < k ≤ len(y), and how many of the k
// largest values have exactly that magnitude. It is a radix selection over 11, 10 and 10 bits: each
// pass looks only at values that share the higher bits.
func kthMagnitude(y []float32, k int) (least uint32, ties int) {
	known := 31 // bits of the magnitude from here up are those of least
	for _, width := range [...]int{11, 10, 10} {
		var count [1 << 11]int32
		shift := known - width
		for _, v := range y {
			if m := magnitude(v); m>>known == least>>known {
				count[m>>shift&(1<<width-1)]++
			}
		}
		b := 1<<width - 1
		for int(count[b]) < k {
			k -= int(count[b])
			b--
		}
		least |= uint32(b) << shift
		known = shift
	}
	return least, k
}

func (host) Select(index []int32, value, x, carry, residual []float32) error {
	checkSelect(index, value, x, carry, residual)
	y := residual
	switch {
	case residual == nil && carry == nil:
		y = x
	case residual == nil:
		p := borrow(len(x))
		defer scratches.Put(p)
		y = *p
	}
	if carry == nil {
		copy(y, x)
	} else {
		for i := range y {
			y[i] = x[i] + carry[i]
		}
	}
	selectLargest(index, value, y)
	take(index, residual)
	return nil
}

// take clears the residual of the selected values.
func take(index []int32, residual []float32) {
	if residual == nil {
		return
	}
	for _, i := range index {
		residual[i] = 0
	}
}

func checkSelect(index []int32, value, x, carry, residual []float32) {
	if len(index) < 1 || len(index) > len(x) || len(value) != len(index) || len(x) > math.MaxInt32 {
		panic(fmt.Sprintf("kernels: selection of %d indices and %d values out of %d", len(index), len(value), len(x)))
	}
	checkFed("selection", x, carry, residual)
	for _, f := range [][]float32{x, carry, residual} {
		if overlap(index, f) || overlap(value, f) {
			panic("kernels: selection: what is written overlaps what is read")
		}
	}
}

// MaxSparseBytes bounds the size in bytes of a payload of at most k out of n values in encoding e,
// which is Sparse16 or Sparse32. The number of long gaps is limited by n: a gap of two bytes passes
// over at least 128 values, one of three bytes over at least 16384, and so on.
func MaxSparseBytes(e Encoding, n, k int) int {
	width := 4
	if e == Sparse16 {
		width = 2
	}
	return 2*binary.MaxVarintLen32 + k*(width+1) + min(k*(uvarintBytes(uint32(n))-1), n>>7+n>>14+n>>21+n>>28)
}

// AppendSparse appends a payload in encoding e, which is Sparse16 or Sparse32, to dst and returns
// the extended slice. The payload holds the k values that d.Select selects of x + carry, 0 < k ≤
// len(x), without those that are zero: no payload needs to name a zero. residual, unless nil, is
// set as by Select; with Sparse16, a selected value leaves there what rounding to BF16 loses.
// Errors are those of the device; then dst is returned unchanged.
func AppendSparse(d Device, dst []byte, e Encoding, k int, x, carry, residual []float32) ([]byte, error) {
	if e != Sparse16 && e != Sparse32 {
		panic(fmt.Sprintf("kernels: sparse payload in encoding %d", e))
	}
	s := selections.Get().(*selection)
	defer selections.Put(s)
	s.resize(k)
	if err := d.Select(s.index, s.value, x, carry, residual); err != nil {
		return dst, err
	}
	k = s.dropZeros()
	before, gaps := len(dst), s.gaps()
	dst = binary.AppendUvarint(dst, uint64(k))
	dst = binary.AppendUvarint(dst, uint64(gaps))
	at, size := len(dst), 4*k
	if e == Sparse16 {
		size = 2 * k
	}
	dst = append(dst, make([]byte, size+gaps)...)
	if e == Sparse32 {
		for j, v := range s.value {
			binary.LittleEndian.PutUint32(dst[at+4*j:], math.Float32bits(v))
		}
	} else if err := s.round(d, dst[at:at+size], residual); err != nil {
		return dst[:before], err
	}
	s.putGaps(dst[at+size:])
	return dst, nil
}

// Run is a range of values, from Lo to Hi−1.
type Run struct{ Lo, Hi int32 }

// AppendRuns appends the Sparse32 payload that names the values of x in runs, which are not empty,
// ascend and do not overlap, to dst and returns the extended slice. It names the zeros among them too,
// so [SetNamed] sets them.
func AppendRuns(dst []byte, x []float32, runs []Run) []byte {
	dst, values := appendRuns(dst, runs)
	for _, r := range runs {
		values = values[copy(values, Bytes(x[r.Lo:r.Hi])):]
	}
	return dst
}

// appendRuns does what AppendRuns does, and leaves the values to the caller, one behind the other.
func appendRuns(dst []byte, runs []Run) (all, values []byte) {
	count, gaps, next := 0, 0, int32(0)
	for _, r := range runs {
		n := int(r.Hi - r.Lo)
		count, gaps, next = count+n, gaps+uvarintBytes(uint32(r.Lo-next))+n-1, r.Hi
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	dst = binary.AppendUvarint(dst, uint64(gaps))
	at := len(dst)
	dst = slices.Grow(dst, 4*count+gaps)[:at+4*count+gaps]
	values, gap := dst[at:][:4*count], dst[at+4*count:]
	next = 0
	for _, r := range runs {
		n := int(r.Hi - r.Lo)
		gap = gap[binary.PutUvarint(gap, uint64(r.Lo-next)):]
		clear(gap[:n-1])
		gap, next = gap[n-1:], r.Hi
	}
	return dst, values
}

// selection holds what Select found. It is pooled, so that calls reuse its memory.
type selection struct {
	index []int32
	value []float32
}

var selections = sync.Pool{New: func() any { return new(selection) }}

func (s *selection) resize(k int) {
	if cap(s.index) < k {
		s.index, s.value = make([]int32, k), make([]float32, k)
	}
	s.index, s.value = s.index[:k], s.value[:k]
}

// dropZeros removes the values that are zero and returns the number of values left.
func (s *selection) dropZeros() int {
	n := 0
	for j, v := range s.value {
		if v != 0 {
			s.index[n], s.value[n] = s.index[j], v
			n++
		}
	}
	s.resize(n)
	return n
}

// round writes the values in BF16 to dst and stores what rounding loses in residual.
func (s *selection) round(d Device, dst []byte, residual []float32) error {
	if residual == nil {
		return d.EncodeBF16(dst, s.value, nil, nil)
	}
	if err := d.EncodeBF16(dst, s.value, nil, s.value); err != nil {
		return err
	}
	for j, i := range s.index {
		residual[i] = s.value[j]
	}
	return nil
}

// gaps returns the number of bytes that putGaps writes.
func (s *selection) gaps() int {
	n, next := 0, int32(0)
	for _, i := range s.index {
		n += uvarintBytes(uint32(i - next))
		next = i + 1
	}
	return n
}

func (s *selection) putGaps(dst []byte) {
	at, next := 0, int32(0)
	for _, i := range s.index {
		if gap := uint32(i - next); gap < 0x80 {
			dst[at] = byte(gap)
			at++
		} else {
			at += binary.PutUvarint(dst[at:], uint64(gap))
		}
		next = i + 1
	}
}

// uvarintBytes returns the size of v as a uvarint, in bytes.
func uvarintBytes(v uint32) int { return (bits.Len32(v|1) + 6) / 7 }
