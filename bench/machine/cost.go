package machine

import (
	"runtime/metrics"
	"slices"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
)

// Cost is what an operation of this process costs besides time.
type Cost struct {
	CPUPerGB          float64 `json:"cpu_s_per_gb"` // CPU seconds, user and system, per 10⁹ bytes of payload
	AllocsPerFrame    float64 `json:"allocs_per_frame"`
	AllocatedPerFrame float64 `json:"allocated_bytes_per_frame"`
}

// costs collects the costs of the runs of one operation.
type costs struct {
	cpu, allocs, allocated []float64 // of one repetition, by run
}

// run calls f, which repeats the operation times times, and notes the costs.
func (c *costs) run(times int, f func()) {
	cpu, allocs, allocated := used()
	f()
	cpu2, allocs2, allocated2 := used()
	n := float64(times)
	c.cpu = append(c.cpu, (cpu2-cpu).Seconds()/n)
	c.allocs = append(c.allocs, float64(allocs2-allocs)/n)
	c.allocated = append(c.allocated, float64(allocated2-allocated)/n)
}

// cost returns the medians, for an operation that moves the given bytes in the given number of
// frames. The first run, which fills pools, counts like all others.
func (c *costs) cost(bytes int64, frames int) Cost {
	mid := func(x []float64) float64 {
		_, m, _ := bench.Quartiles(slices.Clone(x))
		return m
	}
	return Cost{
		CPUPerGB: mid(c.cpu) / (float64(bytes) / 1e9), AllocsPerFrame: mid(c.allocs) / float64(frames),
		AllocatedPerFrame: mid(c.allocated) / float64(frames),
	}
}

// used returns the CPU time of this process, and its allocations so far.
func used() (cpu time.Duration, objects, bytes uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return cpuTime(), sample[0].Value.Uint64(), sample[1].Value.Uint64()
}

// cpuTime returns the CPU time of this process, or 0 if the system does not provide it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
