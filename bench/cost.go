package bench

import (
	"runtime/metrics"
	"slices"
	"syscall"
	"time"
)

// Cost is what an operation takes of this process besides time.
type Cost struct {
	CPUPerGB          float64 `json:"cpu_s_per_gb"` // of processor, user and system, for each 10⁹ bytes of payload
	AllocsPerFrame    float64 `json:"allocs_per_frame"`
	AllocatedPerFrame float64 `json:"allocated_bytes_per_frame"`
}

// costs collects what the runs of one operation took.
type costs struct {
	cpu, allocs, allocated []float64 // of one time, by run
}

// run runs f, which does the operation so many times, and notes what that took.
func (c *costs) run(times int, f func()) {
	cpu, allocs, allocated := used()
	f()
	cpu2, allocs2, allocated2 := used()
	n := float64(times)
	c.cpu = append(c.cpu, (cpu2-cpu).Seconds()/n)
	c.allocs = append(c.allocs, float64(allocs2-allocs)/n)
	c.allocated = append(c.allocated, float64(allocated2-allocated)/n)
}

// cost returns the medians, for an operation that moves so many bytes in so many frames. The first
// run, which fills pools, counts as one of many.
func (c *costs) cost(bytes int64, frames int) Cost {
	mid := func(x []float64) float64 {
		_, m, _ := quartiles(slices.Clone(x))
		return m
	}
	return Cost{
		CPUPerGB: mid(c.cpu) / (float64(bytes) / 1e9), AllocsPerFrame: mid(c.allocs) / float64(frames),
		AllocatedPerFrame: mid(c.allocated) / float64(frames),
	}
}

// used returns the processor time that this process has taken, and what it has allocated.
func used() (cpu time.Duration, objects, bytes uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return cpuTime(), sample[0].Value.Uint64(), sample[1].Value.Uint64()
}

// cpuTime returns the processor time that this process has taken; 0 where the system does not say.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
