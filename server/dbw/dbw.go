package dbw

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// A Controller chooses how many gradients each step waits for. It is told what happens in the order in which it
// happens; all times are seconds since some moment, the same for all calls.
//
// A controller that has just been made knows nothing, and is told of a run from any step on.
type Controller interface {
	// Choose is called when a version is released, before the step after it, and says what that waits for.
	Choose(r Release) Choice

	// Arrived is called for every finished gradient, counted or late, repeated or not.
	Arrived(a Arrival)

	// Committed is called when a step has its quota.
	Committed(at float64)

	// Released is called when a step is applied everywhere, before Choose.
	Released(o Outcome)

	// Name is the spec that New reads.
	Name() string
}

// Release says that a version may be read.
type Release struct {
	Version kintsugi.Step
	At      float64
	Members int // of the run, at least one

	// Optimizer is that of the next step, by its schedule. Part is which part of its learning rate
	// a step has that counts k gradients; nil: all of it.
	Optimizer kintsugi.Optimizer
	Part      func(k int) float64
}

// Arrival is a gradient that a worker has finished.
type Arrival struct {
	Slot    kintsugi.Slot
	Version kintsugi.Step // of the parameters it was computed on
	At      float64
}

// part returns which part of the learning rate a step has that counts k gradients.
func (r *Release) part(k int) float64 {
	if r.Part == nil {
		return 1
	}
	return r.Part(k)
}

// Outcome is what a released step came to. All norms and products are of decoded messages, summed over
// shards.
type Outcome struct {
	Step      kintsugi.Step
	At        float64
	Gradients []Gradient // counted
	Optimizer kintsugi.Optimizer

	SquaredNorm         float64 // ‖ḡ‖² of the applied mean
	Uneven              bool    // tensors have rates of their own
	Measured            bool    // the two below were asked for
	Dot                 float64 // ⟨ḡ, d₋₁⟩, d₋₁ the displacement of the step before; where workers tell it, of their gradients, not of messages
	SquaredDisplacement float64 // ‖d‖²
}

// Gradient is a counted gradient.
type Gradient struct {
	Share       float64 // of the mean; all shares add up to 1
	SquaredNorm float64
	Loss        float64

	// Where Along: the worker's gradient g₋₁ on the version before, along d₋₁, and along the
	// message m₋₁ that the worker had sent of it, which had the share Earlier in the step before.
	Along                bool
	Before, Own, Earlier float64
}

// loss returns the mean loss of the counted gradients.
func (o *Outcome) loss() float64 {
	loss := 0.0
	for _, g := range o.Gradients {
		loss += g.Share * g.Loss
	}
	return loss
}

// Choice is a decision.
type Choice struct {
	Quota  int           // in [1, Release.Members]
	Rate   float64       // multiplies the learning rate of the schedule; 1 but for controllers that choose it
	Want   kintsugi.Want // by-products that the next Outcome should have
	Reason string        // in words

	Estimate Estimate // it was made with; zero if with none
	Expected float64  // seconds from the release to the quota; 0: not known

	// Patience is how many seconds after the release the step may be made with fewer, if at least one is there:
	// whoever is missing then has not just been slow. 0: never.
	Patience float64
}

// Names lists the forms that New reads.
func Names() []string {
	return []string{"dbw", "dbw:paper", "dbw:joint", "bdbw", "adasync:K", "static:K"}
}

// New returns the controller of a name in Names, for a run in which busy workers do as busy says. Another name
// is a usage error.
func New(name string, busy kintsugi.Busy) (Controller, error) {
	interrupt := busy == kintsugi.Interrupt
	switch name {
	case "dbw":
		return newDynamic(name, interrupt), nil
	case "dbw:joint":
		d := newDynamic(name, interrupt)
		d.joint = true
		return d, nil
	case "dbw:paper":
		return newPaper(interrupt), nil
	case "bdbw":
		return newBlind(interrupt), nil
	}
	family, number, _ := strings.Cut(name, ":")
	k, err := strconv.Atoi(number)
	if err == nil && k >= 1 {
		switch family {
		case "adasync":
			return &adasync{first: k}, nil
		case "static":
			return static(k), nil
		}
	}
	return nil, fmt.Errorf("%w: controller %q is unknown; use one of %s", kintsugi.ErrUsage, name, strings.Join(Names(), ", "))
}
