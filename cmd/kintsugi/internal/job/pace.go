package job

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Pace is a flag value: how often something happens, in steps, in time, or at the cheapest
// interval. Two of the three fields are zero.
type Pace struct {
	Steps kintsugi.Step
	Time  time.Duration
	Auto  bool
}

// String returns the pace in the syntax of Set.
func (p *Pace) String() string {
	switch {
	case p.Auto:
		return auto
	case p.Time > 0:
		return p.Time.String()
	}
	return strconv.FormatUint(uint64(p.Steps), 10)
}

// auto lets the run choose.
const auto = "auto"

// Set parses a number of steps, a time with a unit, or auto. Other text is an ErrUsage.
func (p *Pace) Set(text string) error {
	if text == auto {
		*p = Pace{Auto: true}
		return nil
	}
	if steps, err := strconv.ParseUint(text, 10, 64); err == nil {
		*p = Pace{Steps: kintsugi.Step(steps)}
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%w: write a number of steps such as 50, a time such as 10m, or auto", kintsugi.ErrUsage)
	}
	*p = Pace{Time: d}
	return nil
}

// Type returns the type of the flag, for the help.
func (p *Pace) Type() string { return "steps" }
