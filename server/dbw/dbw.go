package dbw

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// A Controller chooses how many gradients each step waits for. Events must be reported to it in the
// order in which they happen. All times are seconds since the same moment.
//
// A new controller knows nothing, and may start at any step of a run. One goroutine may use it at a
// time.
type Controller interface {
	// Choose is called when a version is released, and returns how many gradients the next step
	// waits for.
	Choose(r Release) Choice

	// Arrived is called for every finished gradient, counted or late, repeated or not.
	Arrived(a Arrival)

	// Committed is called when a step has its quota.
	Committed(at float64)

	// Released is called when a step is applied on all shards, before Choose.
	Released(o Outcome)

	// Name returns the name that New reads.
	Name() string
}

// Release says that a version may be read.
type Release struct {
	Version kintsugi.Step
	At      float64
	Members int // in the run, at least one

	// Optimizer is that of the next step, by its schedule. Part returns the part of its learning
	// rate that a step with k gradients has; nil: the whole rate.
	Optimizer kintsugi.Optimizer
	Part      func(k int) float64
}

// Arrival is a gradient that a worker has finished.
type Arrival struct {
	Slot    kintsugi.Slot
	Version kintsugi.Step // of the parameters that it was computed on
	At      float64
}

// part returns the part of the learning rate that a step with k gradients has.
func (r *Release) part(k int) float64 {
	if r.Part == nil {
		return 1
	}
	return r.Part(k)
}

// Outcome is the result of a released step. All norms and products are those of decoded messages,
// summed over shards.
type Outcome struct {
	Step      kintsugi.Step
	At        float64
	Gradients []Gradient // counted
	Optimizer kintsugi.Optimizer

	SquaredNorm         float64 // ‖ḡ‖² of the applied mean
	Uneven              bool    // tensors have rates of their own
	Measured            bool    // the two below were asked for
	Dot                 float64 // ⟨ḡ, d₋₁⟩, d₋₁ the displacement of the step before; if workers report it, of their gradients instead of messages
	SquaredDisplacement float64 // ‖d‖²
}

// Gradient is a counted gradient.
type Gradient struct {
	Share       float64 // of the mean; all shares add up to 1
	SquaredNorm float64
	Loss        float64

	// If Along is set, the worker's gradient g₋₁ on the version before is reported: its product
	// along d₋₁, and that with the message m₋₁ that the worker had sent of it. That message had the
	// share Earlier in the step before.
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
	Rate   float64       // multiplies the learning rate of the schedule; 1 unless the controller chooses the rate too
	Want   kintsugi.Want // by-products that the next Outcome should have
	Reason string        // in words

	Estimate Estimate // on which the choice is based; zero if on none
	Expected float64  // seconds from the release to the quota; 0: not known

	// Patience is the number of seconds after the release from which the step may be made with
	// fewer gradients, but at least one. A worker that is missing by then is not just slow. 0:
	// never.
	Patience float64
}

// Names lists the names that New reads; a letter stands for a number.
func Names() []string {
	return []string{"dbw", "dbw:paper", "dbw:joint", "bdbw", "adasync:K", "static:K"}
}

// New returns the controller of a name in Names. busy is what busy workers of the run do about
// newer parameters. Another name is a usage error.
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
