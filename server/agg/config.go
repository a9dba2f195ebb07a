package agg

import (
	"fmt"
	"math"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Scale says what a step applies: the weighted mean of the counted gradients or their weighted sum.
type Scale uint8

// The scales.
const (
	Mean Scale = iota
	Sum
)

// Late says what happens to a gradient that is not fresh but within the staleness bound.
type Late uint8

// The rules for late gradients.
const (
	Drop  Late = iota // only gradients on the newest version count
	Apply             // a late gradient counts with Config.Weight(staleness)
)

// Config holds the knobs of consistency. The zero value is bsp: wait for every member, drop nothing.
type Config struct {
	// Quota is the number of gradients a step waits for; 0 means one of each member.
	Quota int

	// Late and Staleness bound how many steps old the parameters of a counted gradient may be. With
	// Drop only fresh gradients count, whatever Staleness says. kintsugi.Infinite bounds nothing.
	Late      Late
	Staleness uint32

	// Discount makes a late gradient's weight 1/(1+τ) for staleness τ; otherwise it weighs as a fresh one.
	// A mean divides by the sum of the weights, so it says what a gradient counts beside the others of its
	// step; to damp gradients that are steps of their own, take Sum.
	Discount bool

	// Lead is how many of its own gradients a worker may be ahead of the slowest live one.
	// kintsugi.Infinite bounds nothing; 0 means kintsugi.Infinite, since a step waits by its quota.
	Lead uint32

	// PerWorker is the number of gradients of one worker that one step may count; 0 means 1.
	PerWorker int

	// Scale is mean or sum.
	Scale Scale
}

// Preset returns the configuration with the given name: "bsp" or "async". An unknown name is a usage error.
func Preset(name string) (Config, error) {
	switch name {
	case "bsp":
		return Config{}, nil
	case "async":
		return Config{Quota: 1, Late: Apply, Staleness: kintsugi.Infinite, PerWorker: math.MaxInt}, nil
	}
	return Config{}, fmt.Errorf("%w: consistency %q is unknown; use one of %s", kintsugi.ErrUsage, name, strings.Join(Presets(), ", "))
}

// Presets lists the names that Preset knows.
func Presets() []string { return []string{"bsp", "async"} }

// Check returns a usage error for values that mean nothing.
func (c Config) Check() error {
	if c.Quota < 0 || c.PerWorker < 0 {
		return fmt.Errorf("%w: quota %d and gradients per worker %d must not be negative", kintsugi.ErrUsage, c.Quota, c.PerWorker)
	}
	if c.Lead != 0 && c.Lead != kintsugi.Infinite {
		return fmt.Errorf("%w: a lead of %d is not supported; leave it unbounded", kintsugi.ErrUsage, c.Lead)
	}
	return nil
}

// weight returns the weight of a gradient with staleness tau. A gradient is the mean over its examples,
// so a mean of gradients weighs each by its examples, while a sum takes them as they are.
func (c Config) weight(examples uint32, tau kintsugi.Step) float32 {
	w := 1.0
	if c.Scale == Mean {
		w = float64(examples)
	}
	if c.Discount {
		w /= 1 + float64(tau)
	}
	return float32(w)
}
