package sim

import (
	"math/rand/v2"
	"reflect"
)

// cuts breaks streams right after a message. Faults at random times usually hit messages that are
// sent in every step, and hardly ever those that are sent once in a view. Here the probability for
// a kind of message is higher the rarer the kind is. It has its own random source, so that runs
// without cuts stay the same.
type cuts struct {
	rng  *rand.Rand
	said map[reflect.Type]int
}

// newCuts returns the cuts for every third run with broken connections, and nil for the others.
func newCuts(cfg Config) *cuts {
	if !cfg.Faults.Has(Cut) || cfg.FaultEvery == 0 || cfg.Seed%3 != 0 {
		return nil
	}
	return &cuts{rng: rand.New(rand.NewPCG(cfg.Seed, 'c')), said: make(map[reflect.Type]int)}
}

// cutAfter may break a stream on which m has just been sent.
func (c *Cluster) cutAfter(s *stream, m any) {
	if c.cuts == nil || !c.storming() {
		return
	}
	switch x := m.(type) {
	case handed:
		m = x.message
	case sealed:
		m = x.message
	}
	kind := reflect.TypeOf(m)
	n := c.cuts.said[kind]
	c.cuts.said[kind]++
	if c.cuts.rng.Float64() < 0.3/float64(3+n) {
		c.faults[Cut]++
		c.breakStream(s)
	}
}
