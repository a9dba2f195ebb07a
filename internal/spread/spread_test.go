package spread

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
)

// A copy takes all processors, and others run nevertheless.
func TestOthersRunMeanwhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a := Array{make([]byte, 2*pieceBytes), make([]byte, 2*pieceBytes)}
	var ran atomic.Bool
	go ran.Store(true)
	Copy(a)
	if !ran.Load() {
		t.Error("nobody else ran while two pieces were copied")
	}
}

func TestCopiesAreWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, sizes := range [][]int{{}, {0}, {1}, {pieceBytes}, {pieceBytes + 1}, {3*pieceBytes - 1, 0, 5, 2 * pieceBytes}} {
		var arrays []Array
		for _, n := range sizes {
			from := make([]byte, n)
			for i := range from {
				from[i] = byte(rng.Uint32())
			}
			arrays = append(arrays, Array{make([]byte, n), from})
		}
		Copy(arrays...)
		for i, a := range arrays {
			if !bytes.Equal(a.To, a.From) {
				t.Errorf("array %d of %v is another one", i, sizes)
			}
		}
	}
}
