package job

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestPlacesInMemoryAreRead(t *testing.T) {
	for _, text := range []string{"memory://", "memory://host", "memory://host/x", "memory://:9400/x", "memory://me:pw@host:1/x", "memory://host:1/x?a=b"} {
		if _, err := memoryPlace(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
