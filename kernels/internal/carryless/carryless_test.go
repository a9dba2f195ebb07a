package carryless_test

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/internal/carryless"
)

// A processor that folds in wide vectors never runs the code for narrow ones otherwise.
func TestCopiesThatFoldInNarrowVectorsAreThoseOfTheStandardLibrary(t *testing.T) {
	if !carryless.Narrow {
		t.Skip("this build or processor does not multiply without carry: run it with cgo on amd64")
	}
	rng := rand.New(rand.NewPCG(3, 4))
	src, dst := make([]byte, 1<<16+15), make([]byte, 1<<16+15+64)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for n := 256; n <= 1<<16; n += 64 * (1 + rng.IntN(1+n/256)) {
		crc, from, to := rng.Uint32(), rng.IntN(16), 32+rng.IntN(16)
		b := src[from:][:n]
		clear(dst)
		got := carryless.CopyNarrow(crc, dst[to:][:n], b)
		if want := crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), b); got != want {
			t.Fatalf("CRC32C of %d bytes after %08x is %08x, want %08x", n, crc, got, want)
		}
		if !bytes.Equal(dst[to:][:n], b) || len(bytes.Trim(dst[:to], "\x00")) > 0 || len(bytes.Trim(dst[to+n:], "\x00")) > 0 {
			t.Fatalf("the copy of %d bytes differs, or something else was written", n)
		}
	}
}
