package job

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

func TestWindowsAreSizes(t *testing.T) {
	for text, want := range map[string]int{"auto": 0, WindowDefault: transport.DefaultWindow, "64KiB": 64 << 10, "16MiB": 16 << 20, "2048KiB": 2 << 20, "1GiB": 1 << 30} {
		if got, err := ParseWindow(text); got != want || err != nil {
			t.Errorf("%s is %d bytes, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2", "2MB", "63KiB", "-1MiB", "2GiB", "4294967297KiB", "MiB", "2 MiB", "never"} {
		if got, err := ParseWindow(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q is %d bytes, %v, want an error of usage", text, got, err)
		}
	}
}
