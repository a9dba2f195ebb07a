package job

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// moveAfter is how long others wait for a server that is away before they take over its shards. It
// is a guess: a launcher restarts a process within seconds, and a cluster with a spare machine
// within half a minute.
const moveAfter = waiting(30 * time.Second)

// waiting is a flag value: how long to wait, or never to stop waiting, which is 0.
type waiting time.Duration

const never = "never"

// String returns the value in the syntax of Set.
func (w *waiting) String() string {
	if *w == 0 {
		return never
	}
	return time.Duration(*w).String()
}

// Set parses a time with a unit, or never. Other text is an ErrUsage.
func (w *waiting) Set(text string) error {
	if text == never {
		*w = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%w: write a time such as 30s, or never", kintsugi.ErrUsage)
	}
	*w = waiting(d)
	return nil
}

// Type returns the type of the flag, for the help.
func (w *waiting) Type() string { return "time" }
