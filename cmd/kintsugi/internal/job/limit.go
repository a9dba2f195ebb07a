package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// ParseLimit parses a rate such as 50MB/s, in bytes per second. "" means no limit: +Inf. Other text
// is an ErrUsage.
func ParseLimit(s string) (bytesPerSecond float64, err error) {
	if s == "" {
		return math.Inf(1), nil
	}
	number, ok := strings.CutSuffix(s, "B/s")
	factor := 1.0
	for _, unit := range []struct {
		name   string
		factor float64
	}{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		if n, cut := strings.CutSuffix(number, unit.name); cut && ok {
			number, factor = n, unit.factor
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if x *= factor; !ok || err != nil || !(x >= 1) || math.IsInf(x, 1) {
		return 0, fmt.Errorf("%w: --store-limit %q: use a rate such as 50MB/s, in B/s, kB/s, MB/s or GB/s", kintsugi.ErrUsage, s)
	}
	return x, nil
}

// Limited limits a server's use of a store to its share of --store-limit. The settings are checked.
func (s *Settings) Limited(fs vfs.FS) vfs.FS {
	rate, err := ParseLimit(s.StoreLimit)
	if err != nil || math.IsInf(rate, 1) {
		return fs
	}
	return vfs.Limit(fs, rate/float64(s.Servers))
}
