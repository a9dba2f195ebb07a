package kernels_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkCRC32C compares with hash/crc32, including the copy, and checks the bytes around it.
func checkCRC32C(t *testing.T, crc uint32, b []byte) {
	t.Helper()
	want := crc32.Update(crc, castagnoli, b)
	if got := kernels.CRC32C(crc, b); got != want {
		t.Fatalf("CRC32C of %d bytes after %08x is %08x, want %08x", len(b), crc, got, want)
	}
	memory := bytes.Repeat([]byte{0xa5}, len(b)+128)
	dst := memory[64:][:len(b)]
	if got := kernels.CopyCRC32C(crc, dst, b); got != want || !bytes.Equal(dst, b) {
		t.Fatalf("CopyCRC32C of %d bytes after %08x is %08x, want %08x; the copy is equal: %v", len(b), crc, got, want, bytes.Equal(dst, b))
	}
	if around := append(memory[:64:64], memory[64+len(b):]...); !bytes.Equal(around, bytes.Repeat([]byte{0xa5}, 128)) {
		t.Fatalf("CopyCRC32C of %d bytes wrote around its destination", len(b))
	}
}

func TestCRC32CIsThatOfTheStandardLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<19)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for n := range 4097 {
		checkCRC32C(t, rng.Uint32(), b[n%67:][:n])
	}
	for range 50 {
		lo := rng.IntN(len(b))
		checkCRC32C(t, rng.Uint32(), b[lo:lo+rng.IntN(len(b)-lo)])
	}
	checkCRC32C(t, 0, make([]byte, 1<<16))
	if got := kernels.CRC32C(0, []byte("123456789")); got != 0xe3069283 { // the check value of RFC 3720
		t.Errorf("CRC32C of the digits is %08x", got)
	}
	if crc := kernels.CRC32C(kernels.CRC32C(0, b[:70001]), b[70001:]); crc != kernels.CRC32C(0, b) {
		t.Errorf("CRC32C in two parts is %08x, of the whole %08x", crc, kernels.CRC32C(0, b))
	}
}

func FuzzCRC32C(f *testing.F) {
	f.Add(uint32(0), []byte("123456789"), uint16(0))
	f.Add(uint32(7), []byte("a"), uint16(5000))
	f.Fuzz(func(t *testing.T, crc uint32, b []byte, times uint16) {
		if len(b) > 0 {
			b = bytes.Repeat(b, 1+min(int(times), (1<<16)/len(b)))
		}
		checkCRC32C(t, crc, b)
	})
}

func BenchmarkCRC32C(b *testing.B) {
	for _, n := range []int{256, 512, 1024, 2048, 4096, 1 << 18, 1 << 26} {
		x, y := make([]byte, n), make([]byte, n)
		for i := range x {
			x[i] = byte(i * i)
		}
		for name, f := range map[string]func(){
			"kernels":           func() { kernels.CRC32C(0, x) },
			"hash-crc32":        func() { crc32.Update(0, castagnoli, x) },
			"copy-kernels":      func() { kernels.CopyCRC32C(0, y, x) },
			"copy-then-kernels": func() { copy(y, x); kernels.CRC32C(0, x) },
			"copy":              func() { copy(y, x) },
		} {
			b.Run(fmt.Sprintf("bytes=%d/%s", n, name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
