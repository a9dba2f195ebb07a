package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Times draws the seconds that a worker takes for a gradient and its push. It is safe for
// concurrent use.
type Times struct {
	spec   string
	draw   func(rng *rand.Rand) float64 // with mean 1
	mean   float64                      // in seconds
	traces [][]float64                  // recorded seconds, by slot modulo the number of traces; nil: drawn
}

// TimesForms lists the forms that ParseTimes accepts.
func TimesForms() []string {
	return []string{"constant", "exp:ALPHA", "pareto:SHAPE", "lognormal:SIGMA"}
}

// ParseTimes parses a distribution. Its mean is mean seconds. "exp:A" is 1 − A + A·Exp. "pareto:S"
// has the tail x⁻ˢ, with S above 1. "lognormal:S" is the exponential of a normal distribution with
// standard deviation S. Other text is a usage error.
func ParseTimes(spec string, mean float64) (Times, error) {
	name, text, _ := strings.Cut(spec, ":")
	x, err := strconv.ParseFloat(text, 64)
	t := Times{spec: spec, mean: mean}
	switch {
	case !(mean > 0) || math.IsInf(mean, 0):
		return t, fmt.Errorf("%w: a gradient cannot take %v seconds; it must be a positive number", kintsugi.ErrUsage, mean)
	case spec == "constant":
		t.draw = func(*rand.Rand) float64 { return 1 }
	case name == "exp" && err == nil && x >= 0 && x <= 1:
		t.draw = func(rng *rand.Rand) float64 { return 1 - x + x*rng.ExpFloat64() }
	case name == "pareto" && err == nil && x > 1 && !math.IsInf(x, 0):
		least := (x - 1) / x
		t.draw = func(rng *rand.Rand) float64 { return least * math.Pow(1-rng.Float64(), -1/x) }
	case name == "lognormal" && err == nil && x >= 0 && x < 10:
		t.draw = func(rng *rand.Rand) float64 { return math.Exp(x*rng.NormFloat64() - x*x/2) }
	default:
		return t, fmt.Errorf("%w: times %q are unknown; use one of %s, with ALPHA from 0 to 1, SHAPE above 1, SIGMA from 0",
			kintsugi.ErrUsage, spec, strings.Join(TimesForms(), ", "))
	}
	return t, nil
}

// String returns the distribution, or the source of recorded times.
func (t Times) String() string { return t.spec }

// of returns the time of the next gradient of slot; count is the number of gradients that it has
// begun before.
func (t Times) of(slot, count int, offset uint64, rng *rand.Rand) float64 {
	if t.traces != nil {
		s := t.traces[slot%len(t.traces)]
		return s[(offset+uint64(count))%uint64(len(s))]
	}
	return t.mean * t.draw(rng)
}

// Slowdown makes some workers slower for some time.
type Slowdown struct {
	Factor      float64
	First, Last int     // first and last slot
	From, Until float64 // in seconds; Until 0: to the end
}

// ParseSlowdown parses "xFACTOR for SHARE from SECONDSs", optionally followed by "until SECONDSs".
// SHARE is "half", "all" or a percentage such as "25%" of the workers, those with the smallest
// slots. Other text is a usage error.
func ParseSlowdown(text string, workers int) (Slowdown, error) {
	bad := fmt.Errorf("%w: slowdown %q: write it as \"x5 for half from 100s\" or \"x3 for 25%% from 10s until 60s\"", kintsugi.ErrUsage, text)
	w := strings.Fields(text)
	if (len(w) != 5 && len(w) != 7) || w[1] != "for" || w[3] != "from" || (len(w) == 7 && w[5] != "until") {
		return Slowdown{}, bad
	}
	number := func(s, prefix, suffix string) (float64, bool) {
		x, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(s, prefix), suffix), 64)
		return x, err == nil && strings.HasPrefix(s, prefix) && strings.HasSuffix(s, suffix) && x >= 0 && !math.IsInf(x, 0)
	}
	share, ok1 := map[string]float64{"half": 50, "all": 100}[w[2]], true
	if share == 0 {
		share, ok1 = number(w[2], "", "%")
	}
	s := Slowdown{Last: int(math.Ceil(share/100*float64(workers))) - 1}
	var ok2, ok3 bool
	ok4 := true
	s.Factor, ok2 = number(w[0], "x", "")
	s.From, ok3 = number(w[4], "", "s")
	if len(w) == 7 {
		s.Until, ok4 = number(w[6], "", "s")
	}
	if !ok1 || !ok2 || !ok3 || !ok4 || s.Factor <= 0 || share > 100 || len(w) == 7 && s.Until <= s.From {
		return Slowdown{}, bad
	}
	return s, nil
}

// factor returns how many times longer a gradient takes that slot begins at the given time.
func (s Slowdown) factor(slot int, at float64) float64 {
	if slot < s.First || slot > s.Last || at < s.From || (s.Until > 0 && at >= s.Until) {
		return 1
	}
	return s.Factor
}
