package main

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// statelessForms says what --recovery stateless may be.
const statelessForms = "stateless[:paper]"

// consistency returns who is counted in a step, and what workers do in an outage. Words that nobody knows are an ErrUsage.
func (s *settings) consistency() (agg.Config, error) {
	c, err := agg.Preset(s.Consistency)
	if err != nil {
		return c, err
	}
	protects := s.protects()
	switch s.Outage {
	case "":
		c.Continue = protects.goesOn && c.Pace().Staleness > 0
	case "continue":
		c.Continue = true
	case "wait":
	default:
		return c, fmt.Errorf("%w: --outage %q is unknown; use wait or continue", kintsugi.ErrUsage, s.Outage)
	}
	rules := []kintsugi.KeepRule{kintsugi.KeepDecay, kintsugi.KeepAverage, kintsugi.KeepSum}
	for _, r := range rules {
		if s.Kept == r.String() || s.Kept == "" && r == kintsugi.KeepSum && protects.sums {
			c.Keep = r
			return c, nil
		}
	}
	if s.Kept != "" {
		return c, fmt.Errorf("%w: --kept %q is unknown; use decay, average or sum", kintsugi.ErrUsage, s.Kept)
	}
	return c, nil
}
