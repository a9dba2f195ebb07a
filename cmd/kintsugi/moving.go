package main

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// moveAfter is how long others wait for a server that is away before they take over what it held.
// It is guessed: a launcher starts a process again within seconds, a cluster that has a machine to
// spare within half a minute.
const moveAfter = waiting(30 * time.Second)

// waiting is a flag: a time for which something is waited for, or never to stop waiting. 0: never.
type waiting time.Duration

const never = "never"

// String returns the time as Set reads it.
func (w *waiting) String() string {
	if *w == 0 {
		return never
	}
	return time.Duration(*w).String()
}

// Set reads a time with a unit, or never. What it cannot read is an ErrUsage.
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

// Type names what the flag takes, for the help.
func (w *waiting) Type() string { return "duration" }
