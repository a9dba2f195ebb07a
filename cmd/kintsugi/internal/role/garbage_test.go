package role

import (
	"math"
	"testing"
)

func TestGarbageIsAsMuchAsIsAliveOrALittle(t *testing.T) {
	for _, c := range []struct {
		live, scanned uint64
		want          int
	}{
		{0, 0, 100}, {4 << 20, 1 << 20, 100}, {64 << 20, 64 << 20, 100}, // a small process is any Go program
		{128 << 20, 10 << 20, 50}, {256 << 20, 10 << 20, 25}, {640 << 20, 0, 10},
		{1 << 30, 1 << 20, 10}, {1 << 40, 1 << 30, 10}, {math.MaxUint64, 0, 10},
		{1 << 30, 1 << 30, 100}, {1 << 30, 1 << 29, 50}, // so is one with many pointers
	} {
		if got := garbagePercent(c.live, c.scanned); got != c.want {
			t.Errorf("%d bytes alive, %d of them read: %d percent, want %d", c.live, c.scanned, got, c.want)
		}
	}
}
