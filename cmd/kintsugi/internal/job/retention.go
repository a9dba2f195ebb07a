package job

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// retention says which full checkpoints are kept. It is the value of a flag.
type retention struct{ ckpt.Retention }

// String returns the retention in the syntax of Set.
func (r *retention) String() string {
	s := strconv.Itoa(r.Newest)
	if r.Every > 0 {
		s += ",every=" + strconv.FormatUint(uint64(r.Every), 10)
	}
	return s
}

// Set parses a number of checkpoints, and after a comma every= and a number of steps. Other text is
// an ErrUsage.
func (r *retention) Set(text string) error {
	newest, every, more := strings.Cut(text, ",every=")
	n, err := strconv.Atoi(newest)
	steps := uint64(0)
	if err == nil && more {
		steps, err = strconv.ParseUint(every, 10, 64)
	}
	if err != nil || n < 1 || n > 1000 || more && steps == 0 {
		return fmt.Errorf("%w: write how many of the newest are kept, 1 to 1000, such as 5, or 2,every=1000 to keep one of each 1000 steps besides", kintsugi.ErrUsage)
	}
	r.Retention = ckpt.Retention{Newest: n, Every: kintsugi.Step(steps)}
	return nil
}

// Type returns the type of the flag, for the help.
func (r *retention) Type() string { return "checkpoints" }
