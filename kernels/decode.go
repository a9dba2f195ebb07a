package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

func float32At(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

func bf16At(data []byte, i int) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
}

func fp16At(data []byte, i int) float32 { return fromFP16(binary.LittleEndian.Uint16(data[2*i:])) }

// fromFP16 returns the value of a finite number in half precision, which float32 holds exactly.
func fromFP16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	if exponent == 0 { // zero and the subnormal numbers
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// checkPayload panics unless data is exactly as long as the payload of n values in e. It does not
// check the contents.
func checkPayload(e Encoding, n int, data []byte) {
	if size, err := e.measure(n, data); err != nil || size != len(data) {
		panic(fmt.Sprintf("kernels: %d bytes for %d values in %v: want %d, error %v", len(data), n, e, size, err))
	}
}

func (host) Decode(dst []float32, e Encoding, data []byte) error {
	checkPayload(e, len(dst), data)
	if e.sparse() {
		clear(dst)
		c := cursorOf(e, len(dst), data)
		c.assign(dst, 0)
		return nil
	}
	decode(dst, e, data, len(dst), 0)
	return nil
}

// SetNamed sets the values of dst that a payload of len(dst) values in e, which is Sparse16 or
// Sparse32, names, and leaves the others as they are. It panics unless data has passed [Check] and
// has the length that Check returned.
func SetNamed(dst []float32, e Encoding, data []byte) {
	checkPayload(e, len(dst), data)
	c := cursorOf(e, len(dst), data)
	c.assign(dst, 0)
}

// NamedNorm returns ‖x‖² of the n values x that a payload in e, which is Sparse16 or Sparse32, decodes
// to: the bits of [Device].SquaredNorm, from the named values alone. It panics as SetNamed does.
func NamedNorm(e Encoding, n int, data []byte) float64 {
	checkPayload(e, n, data)
	var lane [lanes]float64
	var x [tile]float32
	for c := cursorOf(e, n, data); c.next < n; {
		run := min(c.run(n), tile)
		c.read(x[:run])
		for i, v := range x[:run] {
			lane[(c.next+i)%lanes] += float64(float64(v) * float64(v))
		}
		c.pass(run)
	}
	return fold(&lane)
}

// decode sets dst to the values, from lo on, of a dense payload of n values. lo is a multiple of
// lanes.
func decode(dst []float32, e Encoding, data []byte, n, lo int) {
	switch e {
	case FP32:
		data = data[4*lo:]
		for i := range dst {
			dst[i] = float32At(data, i)
		}
	case BF16:
		data = data[2*lo:]
		for i := range dst {
			dst[i] = bf16At(data, i)
		}
	case FP16:
		data = data[2*lo:]
		for i := range dst {
			dst[i] = fp16At(data, i)
		}
	case Int8:
		q := data[4*blocks(n):][lo:][:len(dst)]
		for at := 0; at < len(dst); at += block { // lo starts a block, or dst lies within one
			scale := float32At(data, (lo+at)/block)
			for i := at; i < min(at+block, len(dst)); i++ {
				dst[i] = float32(scale * float32(int8(q[i])))
			}
		}
	case Int4:
		q := data[4*blocks(n):]
		for i := range dst {
			dst[i] = float32(float32At(data, (lo+i)/block) * float32(int4At(q, lo+i)))
		}
	case Sign:
		bits := data[4*blocks(n):]
		for i := range dst {
			at := lo + i
			negative := uint32(bits[at/8]>>(at%8)) << 31
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*(at/block):]) | negative)
		}
	case LowRank:
		f, _, _ := parseLowRank(n, data) // checkPayload has seen the error
		f.decode(dst, lo)
	}
}

// decode sets dst to the values from lo on.
func (f *factors) decode(dst []float32, lo int) {
	for i := range dst {
		row, col := (lo+i)/f.cols, (lo+i)%f.cols
		var v float32
		for r := range f.rank {
			v += float32(float32At(f.p, row*f.rank+r) * float32At(f.q, col*f.rank+r))
		}
		dst[i] = v
	}
}

// cursor walks through a sparse payload, entry by entry.
type cursor struct {
	entries     // the entries not yet passed
	next    int // index of the first of them; math.MaxInt: there is none
}

func cursorOf(e Encoding, n int, data []byte) cursor {
	s, _, _ := parseSparse(e, n, data) // checkPayload has seen the error
	c := cursor{entries: s, next: -1}
	c.gap()
	return c
}

// gap moves next to the index of the first entry not yet passed.
func (c *cursor) gap() {
	gap, size := uvarint(c.gaps)
	if size == 0 {
		c.next = math.MaxInt
		return
	}
	c.gaps = c.gaps[size:]
	c.next += 1 + gap
}

// run returns how many entries follow one another without a gap, from the next one on and before
// value end.
func (c *cursor) run(end int) int {
	n, most := 1, min(end-c.next, 1+len(c.gaps))
	for n+8 <= most && binary.LittleEndian.Uint64(c.gaps[n-1:]) == 0 {
		n += 8
	}
	for n < most && c.gaps[n-1] == 0 {
		n++
	}
	return n
}

// pass moves on past n entries, which are a run.
func (c *cursor) pass(n int) {
	c.values, c.gaps, c.next = c.values[n*c.width:], c.gaps[n-1:], c.next+n-1
	c.gap()
}

// seek passes all entries before value lo.
func (c *cursor) seek(lo int) {
	for c.next < lo {
		c.pass(c.run(lo))
	}
}

// read sets dst to the values of the next entries, which are a run.
func (c *cursor) read(dst []float32) {
	if c.width == 4 {
		copy(Bytes(dst), c.values)
		return
	}
	for i := range dst {
		dst[i] = bf16At(c.values, i)
	}
}

// assign sets the values in dst that the payload names; dst starts at value lo.
func (c *cursor) assign(dst []float32, lo int) {
	for c.next < lo+len(dst) {
		n := c.run(lo + len(dst))
		c.read(dst[c.next-lo:][:n])
		c.pass(n)
	}
}

// add adds the named values, weighted, to g, which starts at value lo. Values that are not named
// are +0. Adding them would change nothing, since a sum that started from +0 is never −0.
func (c *cursor) add(g []float32, lo int, weight float32) {
	for c.next < lo+len(g) {
		n := c.run(lo + len(g))
		to := g[c.next-lo:][:n]
		if c.width == 4 {
			for i := range to {
				to[i] += float32(weight * float32At(c.values, i))
			}
		} else {
			for i := range to {
				to[i] += float32(weight * bf16At(c.values, i))
			}
		}
		c.pass(n)
	}
}
