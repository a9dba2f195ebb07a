package role

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestSizesOfMemoryAreRead(t *testing.T) {
	for text, want := range map[string]int64{"1B": 1, "500MB": 5e8, "8GB": 8e9} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "8", "8GB/s", "-1MB", "0B", "xGB"} {
		if _, err := parseBytes(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q is a size", text)
		}
	}
}
