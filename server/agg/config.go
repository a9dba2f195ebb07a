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

// Config holds the settings of consistency. The zero value is bsp: a step counts one gradient of
// each member, all on the newest version, and no worker is ahead of another.
type Config struct {
	// Quota is the number of gradients that a step waits for; 0: one of each member, less Backup.
	// If the members cannot send that many, because each may have only PerWorker, the step waits
	// for as many as they can.
	Quota int

	// Controller names the rule that chooses the quota before every step, by its name in package
	// server/dbw; empty: none. It replaces Quota and Backup, which must then be 0; see
	// Round.Choose.
	Controller string

	// Backup is the number of members that a step does not wait for if Quota is 0. A step counts at
	// least one gradient, however few members there are.
	Backup int

	// Late and Staleness bound the staleness of a counted gradient, in steps. With Drop, only fresh
	// gradients count, whatever Staleness says. kintsugi.Infinite sets no bound.
	Late      Late
	Staleness uint32

	// Discount gives a late gradient of staleness τ 1/(1+τ) of the weight of a fresh one. Nothing
	// makes up for the smaller step: a mean divides by the examples, not by the weights.
	Discount bool

	// Lead is by how many finished gradients a worker may be ahead of the slowest live one and
	// still begin another. kintsugi.Infinite sets no bound; with 0, all go in lock step.
	Lead uint32

	// PerWorker is the number of gradients of one worker that one step may count; 0 means 1.
	PerWorker int

	// Credit is the number of pushes of one worker that may be neither released nor refused; at
	// that number it waits. 0 means 1. Several gradients of one worker in a step need a larger
	// credit. With a bounded Lead it must be 1, because a worker is held back by waiting for its
	// answer.
	Credit int

	// Scale is Mean or Sum.
	Scale Scale

	// ClipNorm bounds the Euclidean norm of each gradient, which is a mean over its examples: a
	// longer one counts as if it were scaled down to ClipNorm. 0 sets no bound. This is the
	// clipping of Pascanu, Mikolov and Bengio (On the difficulty of training recurrent neural
	// networks, ICML 2013, algorithm 1), applied to each gradient instead of their mean. The norm
	// is that of the decoded message, from the worker's ticket, and the clipping is part of the
	// weights of the step. So no byte of a gradient is read for it.
	ClipNorm float64

	// Knee lowers the learning rate of a step that counts fewer than Knee gradients, in proportion:
	// with m gradients the rate is min(1, m/Knee) of the schedule's. 0: the rate does not depend on
	// the number. The knee is the number from which on a larger mean allows no larger rate.
	Knee int

	// Linear is a knee at the number of members at the time of the step: a step that counts one
	// gradient of n members has 1/n of the rate that their mean would have. If every gradient is a
	// step of its own, momentum adds up n stale gradients in the time of one mean, which diverges
	// with the whole rate.
	Linear bool

	// Busy says what a worker does about newer parameters while it computes.
	Busy kintsugi.Busy

	// Continue lets workers go on computing while servers are away, and Keep says how the gradients
	// that they have kept meanwhile are applied. It needs a staleness bound above 0, since a kept
	// gradient counts as a late one.
	Continue bool
	Keep     kintsugi.KeepRule
}

// Check returns a usage error (kintsugi.ErrUsage) for settings that contradict each other or make
// no sense with so many workers.
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

// limit returns the number of gradients of one worker that a step can be sure to get. It is at most
// the credit.
func (c Config) limit() int { return min(max(1, c.PerWorker), c.credit()) }

// quota returns how many gradients the next step waits for, and the reason in words.
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

// Leads returns the lead that the conductor must enforce, kintsugi.Infinite for none. If a step
// waits for a fresh gradient of every member, no worker can be ahead, and nothing has to be
// enforced.
func (c Config) Leads() uint32 {
	if c.Quota == 0 && c.Backup == 0 && c.Controller == "" && c.bound() == 0 {
		return kintsugi.Infinite
	}
	return c.Lead
}

// Certain reports whether the counted set of a step is known beforehand, as long as the members
// stay: one gradient of each, on the newest version.
func (c Config) Certain() bool {
	return c.Quota == 0 && c.Backup == 0 && c.Controller == "" && c.bound() == 0 && c.limit() == 1
}

// bound returns the largest staleness of a counted gradient, in steps.
func (c Config) bound() uint32 {
	if c.Late == Drop {
		return 0
	}
	return c.Staleness
}

// Oldest returns the oldest version on which a gradient may have been computed and still be counted
// after step is released.
func (c Config) Oldest(step kintsugi.Step) kintsugi.Step {
	s := c.bound()
	if s == kintsugi.Infinite || kintsugi.Step(s) >= step {
		return 0
	}
	return step - kintsugi.Step(s)
}

// RatePart returns the part of the schedule's learning rate, in (0, 1], that a step has which
// counts so many gradients in a run of so many members.
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

// Pace returns the settings that the workers of the run must know.
func (c Config) Pace() kintsugi.Pace {
	return kintsugi.Pace{
		Staleness: c.bound(), Credit: c.credit(), Busy: c.Busy,
		// A push on version v is counted in step v+1 or is too late for it. In either case version
		// v+1 comes next.
		Prefetch: c.bound() == 0 && c.credit() == 1,
		Along:    c.Controller != "",
		Continue: c.Continue, Keep: c.Keep,
	}
}

// Held returns how many pushes of one worker a shard must be able to hold: its credit, and as many
// again for what a broken connection left behind; never fewer than four.
func (c Config) Held() int { return 2 * max(2, c.credit()) }

// remembered is the largest number of counted pushes that a round remembers of a worker. Each
// commit names them for every worker, and with rennala:K the credit is K: without a limit, they
// would be megabytes in commits of large runs.
const remembered = 8

// remembers returns how many counted pushes a round remembers of a worker.
func (c Config) remembers() int { return min(c.credit(), remembered) }

// step is what the weights of a step depend on besides its gradients.
type step struct {
	usual            float64 // squared norm of ordinary gradients; 0: not known
	counted, members int
}

// weight returns the weight, in step s, of the gradient of t with staleness tau. A gradient is the
// mean over its examples. So a mean of gradients weighs each by its examples, while a sum takes
// them as they are.
func (c Config) weight(t *kintsugi.Ticket, tau kintsugi.Step, s step) float32 {
	usual, w := s.usual, 1.0
	if c.Scale == Mean {
		w = float64(t.Examples)
	}
	// Whatever the others have done meanwhile, it counts as one nth of all paths.
	if t.Kept > 0 && c.Keep == kintsugi.KeepLocal {
		return float32(w * c.path(s))
	}
	decays := t.Kept > 0 && c.Keep == kintsugi.KeepDecay
	if c.Discount || decays {
		w /= 1 + float64(tau)
	}
	clipped := c.Clipped(t.SquaredNorm)
	if decays && usual > 0 && t.SquaredNorm > usual { // no kept gradient counts as longer than usual
		clipped = min(clipped, math.Sqrt(usual/t.SquaredNorm))
	}
	w *= clipped
	if t.Kept > 0 && c.Keep == kintsugi.KeepSum {
		w *= float64(t.Kept) * sumRate
	}
	return float32(w)
}

// Clipped returns the factor in (0, 1] by which ClipNorm scales a gradient of this squared norm. It
// is 1 if the gradient is no longer than ClipNorm.
func (c Config) Clipped(squaredNorm float64) float64 {
	if c.ClipNorm == 0 || squaredNorm <= c.ClipNorm*c.ClipNorm {
		return 1
	}
	return c.ClipNorm / math.Sqrt(squaredNorm)
}

// path returns the factor that makes a worker's path, the sum of the steps that it took by itself,
// count as one nth of a step at the whole learning rate, with n members.
func (c Config) path(s step) float64 {
	part := 1 / (float64(s.members) * c.RatePart(s.counted, s.members))
	if c.Scale == Mean {
		part *= float64(s.counted)
	}
	return part
}

// sumRate is the part of the learning rate that sums of kept gradients have, as in Training Through
// Failure.
const sumRate = 0.1

// scale returns the factor that multiplies the weighted sum of a step of so many examples. It is a
// single division, rounded once to float32, so that every replica uses the same bits.
func (c Config) scale(examples uint64) float32 {
	if c.Scale == Sum {
		return 1
	}
	return float32(1 / float64(examples))
}
