package agg

import (
	"fmt"
	"math"

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
	Apply             // a late gradient counts, with the weight that Discount gives it
)

// Config holds the knobs of consistency. The zero value is bsp: a step counts one gradient of each member,
// all on the newest version, and nobody is ahead of anybody.
type Config struct {
	// Quota is the number of gradients a step waits for; 0 means one of each member but Backup of them. Where
	// the members cannot have as many, because each may have only PerWorker, the step waits for what they can.
	Quota int

	// Controller names the rule that chooses the quota before every step, in the words of package server/dbw;
	// empty: none. It decides in place of Quota and Backup, which are 0 then; see Round.Choose.
	Controller string

	// Backup is the number of members that a step with Quota 0 does not wait for. At least one gradient
	// makes a step, however few the members are.
	Backup int

	// Late and Staleness bound how many steps old the parameters of a counted gradient may be. With
	// Drop only fresh gradients count, whatever Staleness says. kintsugi.Infinite bounds nothing.
	Late      Late
	Staleness uint32

	// Discount makes a late gradient's weight 1/(1+τ) of a fresh one's for staleness τ. A step is not made up
	// for what it takes off: a mean divides by the examples, not by the weights.
	Discount bool

	// Lead is how many of its own gradients a worker may have finished more than the slowest live one and
	// still begin another. kintsugi.Infinite bounds nothing; with 0 all go in lock step.
	Lead uint32

	// PerWorker is the number of gradients of one worker that one step may count; 0 means 1.
	PerWorker int

	// Credit is the number of pushes a worker may have that are neither released nor refused; 0 means 1:
	// it waits for what becomes of each before it goes on. It takes more to have several gradients of one
	// worker in a step. With a bounded Lead it must be 1: what a worker waits for is what holds it back.
	Credit int

	// Scale is mean or sum.
	Scale Scale

	// ClipNorm bounds the Euclidean norm of each gradient, a mean over its examples: a longer one counts
	// as if it were so long. 0 bounds nothing. It is the clipping of Pascanu, Mikolov and Bengio (On the
	// difficulty of training recurrent neural networks, ICML 2013, algorithm 1), of each gradient in
	// place of their mean. What is bounded is what a worker has sent, decoded, by the norm in its ticket:
	// the weights of a step do it, so that no byte of a gradient is read for it.
	ClipNorm float64

	// Knee lowers the learning rate of a step that counts fewer gradients than that, in proportion: m of them have
	// min(1, m/Knee) of the schedule's. 0: the number of gradients changes nothing. The knee is where a larger mean
	// allows no larger rate any more.
	Knee int

	// Linear is a knee at the number of members, whatever it is when the step is made: a step that counts one gradient
	// of n members has 1/n of the rate that their mean would have. Where every gradient is a step of its own, momentum
	// adds up n stale ones in the time of one mean, and with the whole rate that diverges.
	Linear bool

	// Busy is what a worker does about newer parameters while it computes.
	Busy kintsugi.Busy

	// Continue lets workers go on computing while servers are away, and Keep says how what they
	// have kept is applied. It takes a staleness above 0: a kept gradient enters as a late one.
	Continue bool
	Keep     kintsugi.KeepRule
}

// Check returns a usage error for values that mean nothing in a run of so many workers.
func (c Config) Check(workers int) error {
	rules := []struct {
		bad    bool
		reason string
	}{
		{workers < 1, fmt.Sprintf("%d workers: a run needs a worker", workers)},
		{c.Quota < 0 || c.Backup < 0 || c.PerWorker < 0 || c.Credit < 0 || c.Knee < 0,
			fmt.Sprintf("quota %d, backup workers %d, limit %d, credit %d and knee %d must not be negative", c.Quota, c.Backup, c.PerWorker, c.Credit, c.Knee)},
		{c.Backup >= workers,
			fmt.Sprintf("%d backup workers of %d leave nobody to wait for; use at most %d", c.Backup, workers, workers-1)},
		{c.Quota > 0 && c.Backup > 0,
			fmt.Sprintf("a quota of %d gradients and %d backup workers contradict each other; use one of them", c.Quota, c.Backup)},
		{c.Controller != "" && (c.Quota > 0 || c.Backup > 0),
			fmt.Sprintf("%s chooses the quota; a quota of %d and %d backup workers contradict it", c.Controller, c.Quota, c.Backup)},
		{c.Controller != "" && (c.limit() > 1 || c.bound() > 0),
			fmt.Sprintf("%s counts one fresh gradient of each worker; leave out staleness, limit and credit", c.Controller)},
		{c.Controller != "" && c.Scale == Sum,
			fmt.Sprintf("%s chooses how many gradients a mean has; with a sum the quota would change the learning rate too", c.Controller)},
		{c.Quota > workers*c.limit(),
			fmt.Sprintf("a quota of %d gradients: %d workers cannot have more than %d in one step", c.Quota, workers, workers*c.limit())},
		{c.Leads() != kintsugi.Infinite && c.credit() > 1,
			fmt.Sprintf("a lead of %d cannot be kept with a credit of %d pushes; leave one of them out", c.Lead, c.Credit)},
		{c.Credit > 1 && c.bound() == 0 && c.limit() == 1,
			fmt.Sprintf("a credit of %d pushes is of no use where a step counts one fresh gradient of each worker; raise the limit or the staleness", c.Credit)},
		{c.Continue && c.bound() == 0,
			"workers that go on in an outage need a staleness above 0, since what they have kept is late; use --outage wait, or another consistency"},
		{!(c.ClipNorm >= 0) || math.IsInf(c.ClipNorm, 0), fmt.Sprintf("a gradient cannot have a norm of %v at most; use a positive number, or 0 for no bound", c.ClipNorm)},
		{c.Busy > kintsugi.Pull, fmt.Sprintf("there is no way %d of a busy worker", c.Busy)},
	}
	for _, r := range rules {
		if r.bad {
			return fmt.Errorf("%w: consistency: %s", kintsugi.ErrUsage, r.reason)
		}
	}
	return nil
}

func (c Config) credit() int { return max(1, c.Credit) }

// limit returns how many gradients of one worker a step can be sure to get: it never has more than its credit.
func (c Config) limit() int { return min(max(1, c.PerWorker), c.credit()) }

// quota returns how many gradients the next step waits for, and why, in words.
func (c Config) quota(members int) (int, string) {
	most := c.limit() * members
	switch {
	case c.Controller != "":
		return members, fmt.Sprintf("all members (%d) until %s has chosen", members, c.Controller)
	case c.Quota == 0 && c.Backup == 0:
		return members, fmt.Sprintf("all members (%d)", members)
	case c.Quota == 0 && members <= c.Backup:
		return 1, fmt.Sprintf("one of %d members: no more than the %d backup workers are left", members, c.Backup)
	case c.Quota == 0:
		return members - c.Backup, fmt.Sprintf("%d of %d members", members-c.Backup, members)
	case c.Quota > most:
		return most, fmt.Sprintf("all that %d members can have (%d of a quota of %d)", members, most, c.Quota)
	default:
		return c.Quota, fmt.Sprintf("fixed quota %d", c.Quota)
	}
}

// Leads returns the lead that has to be kept, kintsugi.Infinite for none. Where a step waits for a fresh
// gradient of every member nobody can be ahead, and there is nothing to keep.
func (c Config) Leads() uint32 {
	if c.Quota == 0 && c.Backup == 0 && c.Controller == "" && c.bound() == 0 {
		return kintsugi.Infinite
	}
	return c.Lead
}

// Certain reports whether it is known beforehand what a step counts, as long as the members stay:
// one gradient of each, on the newest version.
func (c Config) Certain() bool {
	return c.Quota == 0 && c.Backup == 0 && c.Controller == "" && c.bound() == 0 && c.limit() == 1
}

// bound returns how many steps old the parameters of a counted gradient may be.
func (c Config) bound() uint32 {
	if c.Late == Drop {
		return 0
	}
	return c.Staleness
}

// Oldest returns the oldest version on which a gradient may have been computed to be counted once
// step is released.
func (c Config) Oldest(step kintsugi.Step) kintsugi.Step {
	s := c.bound()
	if s == kintsugi.Infinite || kintsugi.Step(s) >= step {
		return 0
	}
	return step - kintsugi.Step(s)
}

// RatePart returns which part of the schedule's learning rate a step has that counts so many gradients in a run of so
// many members.
func (c Config) RatePart(counted, members int) float64 {
	knee := c.Knee
	if c.Linear {
		knee = members
	}
	if knee == 0 {
		return 1
	}
	return min(1, float64(counted)/float64(knee))
}

// Pace returns what the workers of the run must know.
func (c Config) Pace() kintsugi.Pace {
	return kintsugi.Pace{
		Staleness: c.bound(), Credit: c.credit(), Busy: c.Busy,
		// A push on version v is counted in step v+1 or too late for it, so version v+1 comes next in any case.
		Prefetch: c.bound() == 0 && c.credit() == 1,
		Along:    c.Controller != "",
		Continue: c.Continue, Keep: c.Keep,
	}
}

// Held returns how many pushes of one worker a shard must be ready to hold: its credit, and as many again
// for what a broken connection left behind; never fewer than four.
func (c Config) Held() int { return 2 * max(2, c.credit()) }

// step is what the weights of a step depend on besides its gradients.
type step struct {
	usual            float64 // squared norm that gradients have; 0: not known
	counted, members int
}

// weight returns the weight of the gradient of t, with staleness tau, in a step. A gradient is the
// mean over its examples, so a mean of gradients weighs each by its examples, while a sum takes
// them as they are.
func (c Config) weight(t *kintsugi.Ticket, tau kintsugi.Step, s step) float32 {
	usual, w := s.usual, 1.0
	if c.Scale == Mean {
		w = float64(t.Examples)
	}
	if t.Kept > 0 && c.Keep == kintsugi.KeepLocal { // whatever the others have done meanwhile, it is an nth of all paths
		return float32(w * c.path(s))
	}
	decays := t.Kept > 0 && c.Keep == kintsugi.KeepDecay
	if c.Discount || decays {
		w /= 1 + float64(tau)
	}
	clipped := c.Clipped(t.SquaredNorm)
	if decays && usual > 0 && t.SquaredNorm > usual { // none longer than usual
		clipped = min(clipped, math.Sqrt(usual/t.SquaredNorm))
	}
	w *= clipped
	if t.Kept > 0 && c.Keep == kintsugi.KeepSum {
		w *= float64(t.Kept) * sumRate
	}
	return float32(w)
}

// Clipped returns what is left of a gradient whose norm is bounded, as a part of it: 1 if it is no
// longer than ClipNorm.
func (c Config) Clipped(squaredNorm float64) float64 {
	if c.ClipNorm == 0 || squaredNorm <= c.ClipNorm*c.ClipNorm {
		return 1
	}
	return c.ClipNorm / math.Sqrt(squaredNorm)
}

// path returns what makes one of n workers' paths an nth of what the step of a whole learning rate would be.
func (c Config) path(s step) float64 {
	part := 1 / (float64(s.members) * c.RatePart(s.counted, s.members))
	if c.Scale == Mean {
		part *= float64(s.counted)
	}
	return part
}

// sumRate is the part of the learning rate that sums of kept gradients have, as in Training Through Failure.
const sumRate = 0.1

// scale returns what multiplies the weighted sum of a step of so many examples: a single division, rounded
// once to float32, so that every replica uses the same bits.
func (c Config) scale(examples uint64) float32 {
	if c.Scale == Sum {
		return 1
	}
	return float32(1 / float64(examples))
}
