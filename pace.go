package kintsugi

// Busy says what a worker does about newer parameters while it computes on older ones.
type Busy uint8

// What a busy worker does.
const (
	Interrupt Busy = iota // gives up a gradient once it can no longer be counted, and takes the newest parameters
	Wait                  // finishes its gradient while newer parameters are fetched alongside, and goes on with the newest
	Pull                  // finishes its gradient, then asks for the newest parameters
)

// Pace is what a worker must know of a run's consistency to keep in step with it. The zero value
// stands for synchronous steps, one gradient at a time.
type Pace struct {
	// Staleness is the largest staleness of a counted gradient, in steps; Infinite means no bound.
	// A worker throws staler gradients away instead of sending them.
	Staleness uint32

	// Credit is the number of pushes whose fate a worker may be waiting for. With fewer, it goes on
	// computing. 0 means 1.
	Credit int

	// Busy is what the worker does about newer parameters while it computes.
	Busy Busy

	// Prefetch makes the worker ask for the next version before it knows what became of its push.
	// Use it where the worker needs the next version in any case; elsewhere it would fetch versions
	// that lack its own gradient. It needs a Credit of 1.
	Prefetch bool

	// Along makes workers fill in Ticket.Along, if the messages that they push are not their
	// gradients. It costs a worker another copy of the parameters, and three passes over that copy
	// for each gradient.
	Along bool
	// Continue lets the worker go on computing on the parameters that it has while servers are
	// away. It keeps those gradients and offers them when the servers are back, as Keep says. It
	// needs a Staleness above 0.
	Continue bool
	Keep     KeepRule
}

// KeepRule says how gradients are applied that workers computed while servers were away.
type KeepRule uint8

// The rules for kept gradients.
const (
	KeepDecay   KeepRule = iota // one after another, each weighted by 1/(1+τ) for staleness τ, none longer than usual
	KeepAverage                 // one mean per worker, as an ordinary late gradient
	KeepSum                     // one sum per worker, with a tenth of the learning rate

	// KeepLocal: each worker goes on training by itself, and the displacement of its parameters
	// counts for one nth in a run of n workers, as in local SGD. It needs a rule whose step is the
	// gradient times a rate.
	KeepLocal
)

// String returns the rule's name.
func (k KeepRule) String() string { return [...]string{"decay", "average", "sum", "local"}[k] }

// KeepRules returns all rules, with the first choice first.
func KeepRules() []KeepRule { return []KeepRule{KeepLocal, KeepDecay, KeepAverage, KeepSum} }
