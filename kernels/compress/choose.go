package compress

import (
	"encoding/binary"
	"math"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

const (
	// samples is the number of words of eight bytes that choose looks at. They hold at least 128
	// exponents, which determines the length of a code to a tenth of a bit.
	samples = 64
	// leastBytes is the smallest frame that choose looks at. Below it there is little to save.
	leastBytes = 32 * samples
	// leastSaving is the fraction of a frame that packing must promise to save.
	leastSaving = 0.1
)

// choose returns the stage that promises to make the payload smallest, judged from words spread
// evenly over it. s2 saves about the fraction of the payload that consists of words of zeros. A
// Huffman code reduces each byte of the plane to the entropy of the plane. choose takes less than a
// microsecond, whatever the frame's size: about 2 % of the fastest encoding (BenchmarkChoose).
func choose(payload []byte, e kernels.Encoding) Stage {
	if len(payload) < leastBytes {
		return Plain
	}
	var histogram [256]uint16
	zeros, w := 0, width(e)
	apart := len(payload) / samples / 8 * 8 // a multiple of 8 bytes, so that each word holds whole values
	for i := range samples {
		word := binary.LittleEndian.Uint64(payload[i*apart:])
		if word == 0 {
			zeros++
		}
		count(&histogram, word, w)
	}
	bySameness := float64(zeros) / samples
	byCode := (1 - entropy(&histogram, samples*8/w)/8) / float64(w)
	switch {
	case max(bySameness, byCode) < leastSaving:
		return Plain
	case bySameness >= byCode:
		return S2
	default:
		return Huff0
	}
}

// count counts the bytes of the plane in a word, as split cuts them out. Values have w bytes.
func count(histogram *[256]uint16, word uint64, w int) {
	switch w {
	case 1:
		for range 8 {
			histogram[byte(word)]++
			word >>= 8
		}
	case 2:
		for range 4 {
			histogram[byte(word>>7)]++
			word >>= 16
		}
	default:
		histogram[byte(word>>23)]++
		histogram[byte(word>>55)]++
	}
}

// entropy estimates how many bits a code needs for each byte, from the histogram of a sample of n
// bytes. A sample contains too few of the rare bytes; the last term corrects for that (Miller
// 1955).
func entropy(histogram *[256]uint16, n int) float64 {
	sum, seen := 0.0, 0
	for _, c := range histogram {
		sum += timesLog[c]
		if c > 0 {
			seen++
		}
	}
	return math.Log2(float64(n)) - sum/float64(n) + float64(seen-1)/(2*math.Ln2*float64(n))
}

// timesLog holds c·log₂ c at index c.
var timesLog = func() (t [8*samples + 1]float64) {
	for c := 2; c < len(t); c++ {
		t[c] = float64(c) * math.Log2(float64(c))
	}
	return t
}()
