package sim

import (
	"math/rand/v2"
	"reflect"
)

// cuts breaks streams right after a message. Faults that come at any time hit what is said in every
// step, and hardly ever what is said once in a view: here a kind of message is hit the more often
// the rarer it is. It has randomness of its own, so that runs without it stay what they are.
type cuts struct {
	rng  *rand.Rand
	said map[reflect.Type]int
}

// newCuts returns the cuts of every third run that has broken connections.
func newCuts(cfg Config) *cuts {
	if !cfg.Faults.Has(Cut) || cfg.FaultEvery == 0 || cfg.Seed%3 != 0 {
		return nil
	}
	return &cuts{rng: rand.New(rand.NewPCG(cfg.Seed, 'c')), said: make(map[reflect.Type]int)}
}

// cutAfter may break a stream that has just been given m to carry.
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
