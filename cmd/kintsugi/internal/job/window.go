package job

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

const (
	windowAuto    = "auto"
	WindowDefault = "1MiB" // transport.DefaultWindow
)

// ParseWindow parses a size such as 1MiB, in bytes; auto is 0. Other text is an ErrUsage.
func ParseWindow(text string) (bytes int, err error) {
	if text == windowAuto {
		return 0, nil
	}
	number, unit := text, 0
	for _, u := range []struct {
		name string
		bits int
	}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}} {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.bits
		}
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if bytes = int(n) << unit; err != nil || n < 0 || unit == 0 || bytes>>unit != int(n) || bytes < transport.LeastWindow || bytes > transport.MostWindow {
		return 0, fmt.Errorf("%w: --window %q: write a size from 64KiB to 1GiB, such as 1MiB, or auto", kintsugi.ErrUsage, text)
	}
	return bytes, nil
}

// WindowBytes returns --window in bytes. The settings are checked.
func (s *Settings) WindowBytes() int {
	n, _ := ParseWindow(s.Window)
	return n
}
