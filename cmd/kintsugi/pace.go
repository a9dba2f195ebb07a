package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// pace is a flag: how often something is done, in steps or in time. One of them is 0.
type pace struct {
	Steps kintsugi.Step
	Time  time.Duration
}

// String returns the pace as Set reads it.
func (p *pace) String() string {
	if p.Time > 0 {
		return p.Time.String()
	}
	return strconv.FormatUint(uint64(p.Steps), 10)
}

// Set reads a number of steps, or a time with a unit. What it cannot read is an ErrUsage.
func (p *pace) Set(text string) error {
	if steps, err := strconv.ParseUint(text, 10, 64); err == nil {
		*p = pace{Steps: kintsugi.Step(steps)}
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%w: write a number of steps such as 50, or a time such as 10m", kintsugi.ErrUsage)
	}
	*p = pace{Time: d}
	return nil
}

// Type names what the flag takes, for the help.
func (p *pace) Type() string { return "steps" }
