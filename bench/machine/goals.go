package machine

import (
	"errors"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Check returns a usage error if the configuration is empty or too large.
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

// CheckKernels returns an error that lists the goals of docs/performance.md that the rows miss by
// more than a fifth, which is the tolerance for other programs on the machine. All goals are
// ratios, which hold on most machines. For arrays in the cache, the gain from fewer passes depends
// on the processor: a step that is close to its bound there cannot be faster.
func CheckKernels(rows []bench.Row) error {
	var missed []error
	least := func(r bench.Row, what string, got, goal float64) {
		if got < 0.8*goal {
			missed = append(missed, fmt.Errorf("%s of %d %s, %d values, %d threads: %s is %.2f; the goal is %.2f", r.Name, r.K, r.DType, r.Elements, r.Threads, what, got, goal))
		}
	}
	for _, r := range rows {
		for _, fewer := range rows { // with more gradients, more passes are saved
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
		case r.Name == "sgd" && r.K >= 4 && r.Fraction < 0.75:
			least(r, "the ratio to order of arrival", r.Ratio, 2)
		case r.Name == "adam" && (r.DType == "int8" || r.DType == "bf16") && !cached:
			least(r, "the fraction of the bound", r.Fraction, 0.75)
			least(r, "the ratio to fp32", r.Ratio, 1)
		}
	}
	return errors.Join(missed...)
}

// CheckGPUKernels does the same for rows of [GPUKernels], whose goals are those of docs/gpu.md.
func CheckGPUKernels(rows []bench.Row) error {
	var missed []error
	for _, r := range rows {
		if r.Fraction < 0.8*r.Goal {
			missed = append(missed, fmt.Errorf("%s of %d %s, %s, %d values: the fraction of a copy is %.2f; the goal is %.2f", r.Name, r.K, r.DType, r.Variant, r.Elements, r.Fraction, r.Goal))
		}
	}
	return errors.Join(missed...)
}

// CheckCheckpoint does the same for rows of [Checkpoint].
func CheckCheckpoint(rows []bench.Row) error {
	var missed []error
	for _, r := range rows {
		if r.Variant != "from the cache" && r.BoundGBPerS > 0 && r.Fraction < 0.8*0.9 {
			missed = append(missed, fmt.Errorf("%s, %s, of %d values: the fraction of the bound is %.2f; the goal is %.2f", r.Name, r.Variant, r.Elements, r.Fraction, 0.9))
		}
	}
	return errors.Join(missed...)
}

// CheckCodecs does the same for rows of [CodecSpeed].
func CheckCodecs(rows []CodecRow) error {
	var missed []error
	least := func(r CodecRow, what string, got, goal float64) {
		if got < 0.8*goal {
			missed = append(missed, fmt.Errorf("%s of %s, %s, %d values, %d threads: %s is %.2f; the goal is %.2f", r.Name, r.DType, r.Variant, r.Elements, r.Threads, what, got, goal))
		}
	}
	encode := map[string]float64{"bf16": 0.8, "int8": 0.6, "sign": 0.6}
	for _, r := range rows {
		inCache := 4*r.Elements < cacheBytes
		switch {
		case r.Name == "crc32c" && r.Variant == "folded" && inCache && kernels.FoldsCRC32C():
			least(r, "the ratio to hash/crc32", r.Ratio, 2)
		case inCache:
		case r.Name == "encode" && r.Variant == "feedback":
			least(r, "the fraction of the bound", r.Fraction, encode[r.DType])
		case r.Name == "select" && r.Variant == "alone": // 4 GB/s if a core moves 20
			least(r, "the fraction of the bound", r.Fraction, 0.2)
		case r.Name == "select": // 1.5 GB/s of the gradient, three times as much including residuals
			least(r, "the fraction of the bound", r.Fraction, 0.2)
		}
	}
	return errors.Join(missed...)
}

// CheckWire does the same for rows of [Wire]. There is no goal for memory that is only checksummed
// at both ends, nor for a gradient that is copied to shared memory: the server's scan moves each
// byte a third time, while the copy moves it twice.
func CheckWire(rows []WireRow) error {
	var missed []error
	goals := map[string]float64{"grpc, landed": 0.65, "shm, written there, without checksums": 0.8}
	for _, r := range rows {
		if goal := goals[r.Device+", "+r.Variant]; r.Fraction < 0.8*goal {
			missed = append(missed, fmt.Errorf("%s, %s, of %d values: the fraction of the bound is %.2f; the goal is %.2f", r.Device, r.Variant, r.Elements, r.Fraction, goal))
		}
	}
	return errors.Join(missed...)
}

// CheckSnapshots does the same for rows of [Snapshots].
func CheckSnapshots(rows []SnapshotRow) error {
	var missed []error
	for _, r := range rows {
		if goal := max(0.01*r.Seconds, 1e-3); r.WaitedP99 > goal/0.8 {
			missed = append(missed, fmt.Errorf("snapshots of %d bytes, %s: steps wait %.1f ms for them (p99); the goal is %.1f ms", r.StateBytes, r.Name, 1e3*r.WaitedP99, 1e3*goal))
		}
	}
	return errors.Join(missed...)
}

// cacheBytes is the assumed limit on a core's own cache.
const cacheBytes = 4 << 20

// inCache reports whether the arrays of a row fit into a core's own cache.
func inCache(r bench.Row) bool { return r.Bytes < cacheBytes }
