package kintsugi

// Busy says what a worker does about newer parameters while it computes on older ones.
type Busy uint8

// The ways of a busy worker.
const (
	Interrupt Busy = iota // gives up a gradient as soon as it can no longer be counted, and takes the newest parameters
	Wait                  // finishes its gradient while newer parameters are fetched beside it, and goes on with the newest
	Pull                  // finishes its gradient, then asks for the newest parameters
)

// Pace is what a worker must know of a run's consistency to keep in step. The zero value is that of
// synchronous steps, one gradient at a time.
type Pace struct {
	// Staleness is how many steps old the parameters of a counted gradient may be; Infinite bounds nothing.
	// A worker throws older gradients away instead of sending them.
	Staleness uint32

	// Credit is how many pushes a worker may have of which it has not heard what became; it goes on computing
	// while it has fewer. 0 means 1.
	Credit int

	// Busy is what the worker does about newer parameters while it computes.
	Busy Busy

	// Prefetch asks for the next version before it is known what became of a push. Right where that takes the
	// next version anyway; elsewhere it would fetch versions that lack the own gradient. Needs a credit of 1.
	Prefetch bool

	// Along asks workers whose messages are not their gradients for Ticket.Along. It costs them another copy of the
	// parameters, and three passes over it for each gradient.
	Along bool
	// Continue lets the worker go on computing on the parameters that it has while servers are
	// away. It keeps the gradients, and offers them when the servers are back, as Keep says. Needs
	// a Staleness above 0.
	Continue bool
	Keep     KeepRule
}

// KeepRule is how gradients are applied that workers have computed while servers were away.
type KeepRule uint8

// The rules for kept gradients.
const (
	KeepDecay   KeepRule = iota // one after the other, each with weight 1/(1+τ) for its staleness τ, and none longer than usual
	KeepAverage                 // one mean of each worker, as an ordinary late gradient
	KeepSum                     // the sum of each worker, with a tenth of the learning rate

	// KeepLocal: each worker trains on by itself, and what that has moved its parameters by counts
	// for one nth in a run of n workers, as in local SGD. It needs a rule whose steps are gradients
	// times a rate.
	KeepLocal
)

// String returns the rule's name.
func (k KeepRule) String() string { return [...]string{"decay", "average", "sum", "local"}[k] }

// KeepRules returns all rules, the first choice first.
func KeepRules() []KeepRule { return []KeepRule{KeepLocal, KeepDecay, KeepAverage, KeepSum} }
