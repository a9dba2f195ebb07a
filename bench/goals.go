package bench

import (
	"errors"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
)

// Check returns a usage error where the configuration asks for nothing, or for more than there is.
func (c *KernelsConfig) Check() error {
	bad := len(c.Sizes) == 0 || len(c.K) == 0 || len(c.Threads) == 0 || c.Pairs < 1 || c.AtLeast < 0
	for _, size := range c.Sizes {
		bad = bad || size < 1<<20 || size > 1<<40
	}
	for _, k := range c.K {
		bad = bad || k < 1 || k > 64
	}
	for _, n := range c.Threads {
		bad = bad || n < 1 || n > 64
	}
	if bad {
		return fmt.Errorf("%w: bench kernels takes sizes from 1 MiB to 1 TiB, 1 to 64 gradients, 1 to 64 threads, and a round at least", kintsugi.ErrUsage)
	}
	return nil
}

// CheckKernels returns an error that lists the goals of docs/performance.md which the rows miss by more than a
// fifth, for what other programs on the machine may cost. All are ratios, so they hold on any machine.
func CheckKernels(rows []Row) error {
	var missed []error
	least := func(r Row, what string, got, goal float64) {
		if got < 0.8*goal {
			missed = append(missed, fmt.Errorf("%s of %d %s, %d values, %d threads: %s is %.2f; the goal is %.2f", r.Name, r.K, r.DType, r.Elements, r.Threads, what, got, goal))
		}
	}
	for _, r := range rows {
		for _, fewer := range rows { // the more gradients, the more passes are saved
			if r.Variant == "fused" && r.Name == "sgd" && fewer.Name == r.Name && fewer.Variant == r.Variant && fewer.K < r.K &&
				fewer.Threads == r.Threads && inCache(fewer) == inCache(r) {
				least(r, fmt.Sprintf("the ratio to order of arrival, over that of %d,", fewer.K), r.Ratio/fewer.Ratio, 1)
			}
		}
		cached := inCache(r)
		switch {
		case r.Variant != "fused":
		case r.Name == "sgd" && r.K >= 4 && !cached:
			least(r, "the fraction of the bound", r.Fraction, 0.85)
			least(r, "the ratio to order of arrival", r.Ratio, 1.3)
		case r.Name == "sgd" && r.K >= 4:
			least(r, "the ratio to order of arrival", r.Ratio, 2)
		case r.Name == "adam" && (r.DType == "int8" || r.DType == "bf16") && !cached:
			least(r, "the fraction of the bound", r.Fraction, 0.75)
			least(r, "the ratio to fp32", r.Ratio, 1)
		}
	}
	return errors.Join(missed...)
}

// inCache says whether the arrays of a row fit a core's own cache.
func inCache(r Row) bool { return r.Bytes < 4<<20 }
