package job

import (
	"log/slog"
	"os"
	"runtime"
	"testing"
)

// A process that is alone on its machine uses all of its cores, and those of train share them.
func TestThreadsAreAShareOfTheCores(t *testing.T) {
	for _, c := range []struct {
		cores, processes int
		set              Settings
		kernels, engine  int
	}{
		{cores: 2, processes: 1, kernels: 2, engine: 2},
		{cores: 2, processes: 4, kernels: 1, engine: 1},
		{cores: 16, processes: 4, kernels: 4, engine: 4},
		{cores: 64, processes: 1, kernels: 64, engine: 8}, // a convolution of 64 images has as many parts
		{cores: 64, processes: 1, set: Settings{Threads: 3, BLASThreads: 16}, kernels: 3, engine: 16},
		{cores: 16, processes: 1, set: Settings{Engine: "gorgonia"}, kernels: 16, engine: 1},
	} {
		old := runtime.GOMAXPROCS(c.cores)
		kernels, engine := c.set.KernelThreads(c.processes), c.set.EngineThreads(c.processes)
		runtime.GOMAXPROCS(old)
		if kernels != c.kernels || engine != c.engine {
			t.Errorf("each of %d processes on %d cores, with %d, %d and %q: %d threads of kernels and %d of engines, want %d and %d",
				c.processes, c.cores, c.set.Threads, c.set.BLASThreads, c.set.Engine, kernels, engine, c.kernels, c.engine)
		}
	}
}

// A container shows all cores of its machine, and allows the use of some. Libraries count what they
// see; the program of a worker is told.
func TestProgramsAreToldOfALimitOnCores(t *testing.T) {
	cores := runtime.NumCPU()
	for _, c := range []struct {
		cores     int
		set, want string
	}{{cores + 1, "", ""}, {cores, "", ""}, {cores, "3", "3"}, {1, "", "1"}, {1, "3", "3"}} {
		if c.cores == cores && c.cores == 1 && c.want == "1" {
			continue // one core, all of which may be used
		}
		t.Setenv(threadsVariable, c.set)
		old := runtime.GOMAXPROCS(c.cores)
		err := (&Problem{Program: &Program{}}).ForWorker(slog.New(slog.DiscardHandler))
		runtime.GOMAXPROCS(old)
		if got := os.Getenv(threadsVariable); err != nil || got != c.want {
			t.Errorf("with %d of %d cores and %q threads, a program is told to use %q (%v), want %q", c.cores, cores, c.set, got, err, c.want)
		}
	}
}
