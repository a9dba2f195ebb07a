package job

import (
	"errors"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

func TestWaitingIsATimeOrNever(t *testing.T) {
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "never": 0, "0": 0, "0s": 0} {
		w := waiting(1)
		if err := w.Set(text); err != nil || time.Duration(w) != want {
			t.Errorf("%q: %v, %v", text, time.Duration(w), err)
		}
		again := waiting(1)
		if err := again.Set(w.String()); err != nil || again != w {
			t.Errorf("%q is written as %q, and read as %v, %v", text, w.String(), time.Duration(again), err)
		}
	}
	for _, text := range []string{"", "-1s", "30", "soon"} {
		w := waiting(1)
		if err := w.Set(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
