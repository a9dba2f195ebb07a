package job

import (
	"errors"
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestALimitIsARate(t *testing.T) {
	for text, want := range map[string]float64{"": math.Inf(1), "50MB/s": 5e7, "1.5GB/s": 1.5e9, "2kB/s": 2000, "7B/s": 7} {
		if got, err := ParseLimit(text); got != want || err != nil {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"50", "50MB", "MB/s", "0B/s", "-1kB/s", "NaNB/s", "InfB/s", "1TB/s", "50 MB/s"} {
		if _, err := ParseLimit(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
