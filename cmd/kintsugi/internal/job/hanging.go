package job

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/timeout"
)

// hanging is a flag value: how long a program or a GPU may take before it counts as hung. 0: as long as it
// likes; timeout.Learned: auto.
type hanging time.Duration

// String returns the value in the syntax of Set.
func (h *hanging) String() string {
	switch *h {
	case 0:
		return never
	case hanging(timeout.Learned):
		return auto
	}
	return time.Duration(*h).String()
}

// Set parses a time with a unit, auto or never. Other text is an ErrUsage.
func (h *hanging) Set(text string) error {
	switch text {
	case never:
		*h = 0
		return nil
	case auto:
		*h = hanging(timeout.Learned)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%w: write a time such as 10m, auto or never", kintsugi.ErrUsage)
	}
	*h = hanging(d)
	return nil
}

// gpuHangs is how long a GPU may take by default for what it is given at once, which is a gradient or
// a step of a built-in model: these take seconds at most.
const gpuHangs = 2 * time.Minute

// ofGPU returns how long a GPU may take for what it is given.
func (h *hanging) ofGPU() time.Duration {
	if *h == hanging(timeout.Learned) {
		return gpuHangs
	}
	return time.Duration(*h)
}

// Type returns the type of the flag, for the help.
func (h *hanging) Type() string { return "time" }
