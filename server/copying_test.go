package server

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestCopyAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, sizes := range [][]int{{}, {0}, {1}, {pieceBytes}, {pieceBytes + 1}, {3*pieceBytes - 1, 0, 5, 2 * pieceBytes}} {
		var arrays []copying
		for _, n := range sizes {
			from := make([]byte, n)
			for i := range from {
				from[i] = byte(rng.Uint32())
			}
			arrays = append(arrays, copying{make([]byte, n), from})
		}
		copyAll(arrays...)
		for i, a := range arrays {
			if !bytes.Equal(a.to, a.from) {
				t.Errorf("array %d of %v is another one", i, sizes)
			}
		}
	}
}
