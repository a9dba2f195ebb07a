package ledger

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// Kind is where a perturbation that recurs comes from.
type Kind uint8

// The kinds.
const (
	Dropped   Kind = iota // gradients that came too late; see DroppedNorm
	Stale                 // gradients of older parameters
	Quantised             // bytes left out on the way; with error feedback the norm is that of the residual
	Relaxed               // a replica that lags
	kinds
)

var kindNames = [kinds]string{"dropped gradients", "stale gradients", "quantisation", "relaxed replication"}

// String says what the kind is.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Step is what a run knows of one of its steps.
type Step struct {
	Step        kintsugi.Step
	Loss        float64
	Seconds     float64
	SquaredNorm float64 // ‖ḡ‖²

	// The dots of this and of the last mean gradient with the displacement d between their
	// parameters, and ‖d‖²; 0, 0, 0 if nobody asked for them.
	Dot, LastDot, SquaredDisplacement float64
}

// Perturbation is a δ: what would change, as the kernels measure it.
type Perturbation struct {
	Dot     float64 // ⟨ḡ, δ⟩; 0 if it is not known, which is its mean over all directions
	Squared float64 // ‖δ‖²
}

// Ledger books one run. One goroutine owns it.
type Ledger struct {
	loss, norm    trend   // of the loss, of log ‖ḡ‖²
	logLoss       trend   // of log loss: a loss that levels off lies on a line longer there
	negative      bool    // some loss was not positive, and had no logarithm
	bend, way     float64 // fading sums of ⟨ḡ − ḡ₋₁, d⟩ and ‖d‖²
	seconds, told float64 // fading sums
	keep          float64 // how much of a sum is left after a step
	exposed       []exposed
	recurring     [kinds]float64

	failures            int
	predicted, measured float64 // sums over failures
}

// New returns a ledger that forgets half of what it knows of the run every halfLife steps, at least 4; 50 is usual.
func New(halfLife float64) *Ledger {
	halfLife = max(4, halfLife)
	return &Ledger{loss: trend{halfLife: halfLife}, logLoss: trend{halfLife: halfLife}, norm: trend{halfLife: halfLife}, keep: math.Exp2(-1 / halfLife)}
}

// Observe books a step. Steps ascend; after a restore those that are repeated are not booked again.
func (l *Ledger) Observe(s Step) {
	at := float64(s.Step)
	if l.loss.w > 0 && at <= l.loss.last {
		return
	}
	l.loss.add(at, s.Loss)
	if s.Loss > 0 {
		l.logLoss.add(at, math.Log(s.Loss))
	} else if tame(s.Loss) {
		l.negative = true
	}
	l.norm.add(at, math.Log(s.SquaredNorm))
	if b := s.Dot - s.LastDot; tame(b) && tame(s.SquaredDisplacement) {
		l.bend, l.way = l.bend*l.keep+b, l.way*l.keep+s.SquaredDisplacement
	}
	if tame(s.Seconds) {
		l.seconds, l.told = l.seconds*l.keep+s.Seconds, l.told*l.keep+1
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// tame reports whether x and its square are finite: what is not would make a fading sum infinite,
// which it then is for the rest of the run.
func tame(x float64) bool { return finite(x * x) }

// Decrease returns by how much the loss falls in a step. ok is false while it is not certain that
// it falls: then no number of steps is known to pay a perturbation back.
func (l *Ledger) Decrease() (perStep float64, ok bool) {
	slope, ok := l.falls()
	if l.negative {
		return -slope, ok
	}
	return math.Exp(l.logLoss.now(slope)) * -math.Expm1(slope), ok
}

// falls returns the slope of the loss, or of its logarithm where all losses were positive. ok is
// false unless it certainly falls.
func (l *Ledger) falls() (slope float64, ok bool) {
	if l.negative {
		return l.loss.falls()
	}
	return l.logLoss.falls()
}

// Curvature returns L̂ along the way of the parameters; 0 before it is known, and where it is
// negative. Where the shards of the run are exposed it is that of the way back to what is saved of
// them.
func (l *Ledger) Curvature() float64 {
	if len(l.exposed) > 0 {
		return l.back().curvature
	}
	if !(l.way > 0) {
		return 0
	}
	return max(0, l.bend/l.way)
}

// Contraction returns by which factor a step shortens the way to the optimum, from the fall of the gradient's norm.
// ok is false while it is not certain that it falls.
func (l *Ledger) Contraction() (c float64, ok bool) {
	slope, ok := l.norm.falls()
	return math.Exp(slope / 2), ok
}

// Rework predicts how many steps a perturbation costs, calibrated. It is never negative. ok is
// false where it is not certain that the loss falls.
func (l *Ledger) Rework(p Perturbation) (steps float64, ok bool) {
	factor, _ := l.Calibration()
	steps, ok = l.Predict(p)
	return steps * factor, ok
}

// Predict is Rework before the calibration. A perturbation is not what training looks for: if what
// is known of it says that it lowers the loss, that is the noise of a gradient, and it is predicted
// to cost nothing.
func (l *Ledger) Predict(p Perturbation) (steps float64, ok bool) {
	return l.Steps(max(0, p.Dot+l.Curvature()*p.Squared/2))
}

// Steps returns in how many steps the loss falls by as much as it was raised; negative where
// increase is, which must have been measured. A loss that is positive falls by a share of itself in
// each step, so what raises it by a factor costs the logarithm of that; for a small increase this
// is the increase over Decrease. ok is false where it is not certain that the loss falls.
func (l *Ledger) Steps(increase float64) (steps float64, ok bool) {
	slope, ok := l.falls()
	if !ok || math.IsNaN(increase) {
		return 0, false
	}
	if l.negative {
		return increase / -slope, true
	}
	return math.Log1p(max(increase/math.Exp(l.logLoss.now(slope)), lowest-1)) / -slope, true
}

// lowest is the share of the loss below which no prediction says it would fall.
const lowest = 1e-3

// Failure books what a failure has cost, beside what Predict said of it. deviation is the standard
// error of measured; 0: it is exact. Of what is only known within more than was predicted hardly
// anything is believed.
func (l *Ledger) Failure(predicted, measured, deviation float64) {
	if tame(predicted) && tame(measured) && tame(deviation) {
		l.failures++
		l.predicted += predicted
		if deviation > 0 {
			trust := predicted * predicted / (predicted*predicted + deviation*deviation)
			measured = predicted + trust*(measured-predicted)
		}
		l.measured += measured
	}
}

// Calibration returns what predictions are multiplied by, and how many failures it knows: measured
// over predicted steps, as if one failure more had cost what is predicted on average. It is never
// negative.
func (l *Ledger) Calibration() (factor float64, failures int) {
	if l.failures == 0 || l.predicted <= 0 {
		return 1, l.failures
	}
	prior := l.predicted / float64(l.failures)
	return max(0, (l.measured+prior)/(l.predicted+prior)), l.failures
}

// Recur books the size ‖δ‖ of a perturbation of this step that comes in every step, such as a residual.
func (l *Ledger) Recur(k Kind, norm float64) {
	if finite(norm) && norm >= 0 {
		l.recurring[k] += (1 - l.keep) * (norm - l.recurring[k])
	}
}

// Floor returns how far from its way the run is kept by what recurs, and by how much that raises the loss, in
// steps. ok is false if the run does not contract.
func (l *Ledger) Floor() (distance, steps float64, ok bool) {
	sum := 0.0
	for _, norm := range l.recurring { // they may all point one way
		sum += norm
	}
	c, contracts := l.Contraction()
	if sum == 0 {
		return 0, 0, true
	}
	if !contracts {
		return 0, 0, false
	}
	distance = FloorDistance(c, sum)
	steps, ok = l.Rework(Perturbation{Squared: distance * distance})
	return distance, steps, ok
}

// Server is what would be lost with one server now.
type Server struct {
	Server   kintsugi.ServerID
	Restored Perturbation // of the parameters, if its chunks were restored from what is saved of them
	Replica  bool         // another server, or memory that outlives the process, has every update: nothing is lost
	Back     bool         // everybody goes back to a full checkpoint, Age steps
	Copied   bool         // its chunks go back to a copy, Age steps
	Age      float64
	Outage   float64 // seconds until training goes on
}

// Cost is what the loss of a server would cost.
type Cost struct {
	Server  kintsugi.ServerID
	Steps   float64
	Seconds float64 // of those steps and of the outage
	Known   bool    // else Steps and Seconds are not, because it is not certain that the loss falls
	Why     string
}

// Cost says what losing a server now would cost.
func (l *Ledger) Cost(s Server) Cost {
	c := Cost{Server: s.Server, Known: true}
	switch {
	case s.Replica:
		c.Why = "every update is elsewhere too"
	case s.Back:
		c.Steps, c.Why = s.Age, fmt.Sprintf("all go back %.0f steps to the last full checkpoint", s.Age)
	case s.Copied:
		c.Steps, c.Why = s.Age, fmt.Sprintf("its chunks go back %.0f steps to the newest copy", s.Age)
	default:
		c.Steps, c.Known = l.Rework(s.Restored)
		factor, failures := l.Calibration()
		c.Why = fmt.Sprintf("its chunks go back by ‖δ‖ = %.3g; calibrated by %.2f after %d failures", math.Sqrt(s.Restored.Squared), factor, failures)
		if !c.Known {
			c.Why = "the loss does not fall by more than its noise, so it is not known how many steps make up for anything"
		}
	}
	c.Seconds = s.Outage
	if l.told > 0 {
		c.Seconds += c.Steps * l.seconds / l.told
	}
	return c
}
