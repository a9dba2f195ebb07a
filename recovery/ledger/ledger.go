package ledger

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// Kind says where a recurring perturbation comes from.
type Kind uint8

// The kinds.
const (
	Dropped   Kind = iota // gradients that came too late; see DroppedNorm
	Stale                 // gradients of older parameters
	Quantised             // bytes left out when sending; with error feedback, the norm is that of the residual
	Relaxed               // a replica that is behind
	kinds
)

var kindNames = [kinds]string{"dropped gradients", "stale gradients", "quantisation", "relaxed replication"}

// String returns the kind in words.
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

	// The dot products of this and of the last mean gradient with the displacement d between their
	// parameters, and ‖d‖²; 0, 0, 0 if they were not asked for.
	Dot, LastDot, SquaredDisplacement float64
}

// Perturbation is a change δ of the parameters, as the kernels measure it.
type Perturbation struct {
	Dot     float64 // ⟨ḡ, δ⟩; 0 if it is not known, which is its mean over all directions
	Squared float64 // ‖δ‖²
}

// Ledger keeps the account of one run. One goroutine at a time may use it.
type Ledger struct {
	loss, norm    trend   // of the loss, of log ‖ḡ‖²
	logLoss       trend   // of log loss: a loss that levels off is closer to a line in logarithms, for longer
	negative      bool    // some loss was not positive, and had no logarithm
	bend, way     float64 // fading sums of ⟨ḡ − ḡ₋₁, d⟩ and ‖d‖²
	seconds, told float64 // fading sums
	keep          float64 // the part of a sum that is left after a step
	exposed       []exposed
	recurring     [kinds]float64

	failures            int
	predicted, measured float64 // sums over failures
}

// New returns a ledger that forgets half of what it knows of the run every halfLife steps. A
// halfLife below 4 counts as 4; 50 is usual.
func New(halfLife float64) *Ledger {
	halfLife = max(4, halfLife)
	return &Ledger{loss: trend{halfLife: halfLife}, logLoss: trend{halfLife: halfLife}, norm: trend{halfLife: halfLife}, keep: math.Exp2(-1 / halfLife)}
}

// Observe records a step. Steps must ascend: after a restore, steps that are repeated are not
// recorded again.
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

// tame reports whether x and its square are finite. Any other value would make a fading sum
// infinite for the rest of the run.
func tame(x float64) bool { return finite(x * x) }

// Decrease returns by how much the loss falls in a step. ok is false while it is not certain that
// it falls: then no number of steps is known to make up for a perturbation.
func (l *Ledger) Decrease() (perStep float64, ok bool) {
	slope, ok := l.falls()
	if l.negative {
		return -slope, ok
	}
	return math.Exp(l.logLoss.now(slope)) * -math.Expm1(slope), ok
}

// falls returns the slope of the loss, or of its logarithm if all losses were positive. ok is false
// unless it certainly falls.
func (l *Ledger) falls() (slope float64, ok bool) {
	if l.negative {
		return l.loss.falls()
	}
	return l.logLoss.falls()
}

// Curvature returns L̂ along the path of the parameters; 0 before it is known, and if it is
// negative. If the run's distances from its saved values are known (Exposed), it is the curvature
// of the path back to those.
func (l *Ledger) Curvature() float64 {
	if len(l.exposed) > 0 {
		return l.back().curvature
	}
	if !(l.way > 0) {
		return 0
	}
	return max(0, l.bend/l.way)
}

// Contraction returns the factor by which a step shortens the distance to the optimum, estimated
// from the fall of the gradient's norm. ok is false while it is not certain that the norm falls.
func (l *Ledger) Contraction() (c float64, ok bool) {
	slope, ok := l.norm.falls()
	return math.Exp(slope / 2), ok
}

// Rework predicts how many steps a perturbation costs, calibrated. It is never negative. ok is
// false if it is not certain that the loss falls.
func (l *Ledger) Rework(p Perturbation) (steps float64, ok bool) {
	factor, _ := l.Calibration()
	steps, ok = l.Predict(p)
	return steps * factor, ok
}

// Predict is Rework before calibration. A perturbation has no reason to lower the loss: if its
// measurements say that it does, that is the noise of a gradient, and its predicted cost is 0.
func (l *Ledger) Predict(p Perturbation) (steps float64, ok bool) {
	return l.Steps(max(0, p.Dot+l.Curvature()*p.Squared/2))
}

// Steps returns in how many steps the loss falls by increase. It is negative if increase is, which
// must then have been measured. A positive loss falls by a share of itself in each step, so an
// increase by a factor costs steps in proportion to the logarithm of the factor; for a small
// increase, this is increase over Decrease. ok is false if it is not certain that the loss falls.
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

// lowest bounds predictions: none says that the loss would fall below this share of itself.
const lowest = 1e-3

// Failure records the measured cost of a failure, and what Predict said of it, both in steps.
// deviation is the standard error of measured; 0: it is exact. A measurement whose error is larger
// than the prediction gets little weight.
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

// Calibration returns the factor by which predictions are multiplied, and the number of failures
// that it is based on. The factor is the ratio of measured to predicted steps, with one more
// failure added that cost what was predicted on average. It is never negative.
func (l *Ledger) Calibration() (factor float64, failures int) {
	if l.failures == 0 || l.predicted <= 0 {
		return 1, l.failures
	}
	prior := l.predicted / float64(l.failures)
	return max(0, (l.measured+prior)/(l.predicted+prior)), l.failures
}

// Recur records the size ‖δ‖ in this step of a perturbation that recurs in every step, such as a
// residual.
func (l *Ledger) Recur(k Kind, norm float64) {
	if finite(norm) && norm >= 0 {
		l.recurring[k] += (1 - l.keep) * (norm - l.recurring[k])
	}
}

// Floor returns how far recurring perturbations keep the run from its path, and the steps that the
// resulting rise of the loss costs. ok is false if there are such perturbations and the run does
// not contract, or if it is not certain that the loss falls.
func (l *Ledger) Floor() (distance, steps float64, ok bool) {
	sum := 0.0
	for _, norm := range l.recurring { // all may point in one direction
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

// Server says what would be lost now if one server were lost.
type Server struct {
	Server   kintsugi.ServerID
	Restored Perturbation // of the parameters, if its chunks were restored from their saved values
	Replica  bool         // another server, or memory outside the process, has every update: nothing is lost
	Back     bool         // all shards go back to a full checkpoint, by Age steps
	Copied   bool         // its chunks go back to a copy, by Age steps
	Age      float64
	Outage   float64 // seconds until training goes on
}

// Cost is the cost of losing a server.
type Cost struct {
	Server  kintsugi.ServerID
	Steps   float64
	Seconds float64 // of those steps and of the outage
	Known   bool    // if false, Steps and Seconds are not known, because it is not certain that the loss falls
	Why     string
}

// Cost returns what the loss of a server would cost now.
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
