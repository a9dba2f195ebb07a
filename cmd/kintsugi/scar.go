package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// scarKnobs are what --recovery scar decides besides partial restores: how much of the model the running checkpoint
// takes at once, and how often.
type scarKnobs struct {
	fraction float64       // r: of the bytes of a shard, in one save
	period   kintsugi.Step // C: steps in which as many bytes are saved as the shard has
}

// The defaults: an eighth of the model is the fraction behind the best results of the paper. With
// C = 16 a save is due every second step; half of C is then the age of a chunk where all move alike.
const (
	scarFraction = 1.0 / 8
	scarPeriod   = 16
)

// scarForms says what --recovery scar may be.
const scarForms = "scar[:FRACTION][,STEPS]"

// parseScar reads scar[:r][,C]. ok is false for another word; other numbers than a fraction in (0, 1] and a period
// of at least a step are an ErrUsage.
func parseScar(s string) (k scarKnobs, ok bool, err error) {
	rest, ok := strings.CutPrefix(s, "scar")
	if !ok || rest != "" && rest[0] != ':' && rest[0] != ',' {
		return k, false, nil
	}
	k = scarKnobs{fraction: scarFraction, period: scarPeriod}
	fraction, period, hasPeriod := strings.Cut(strings.TrimPrefix(rest, ":"), ",")
	if fraction != "" || strings.HasPrefix(rest, ":") {
		k.fraction, err = parseFraction(fraction)
	}
	if err == nil && hasPeriod {
		var n uint64
		n, err = strconv.ParseUint(period, 10, 17)
		k.period = kintsugi.Step(n)
	}
	if err != nil || !(k.fraction > 0 && k.fraction <= 1) || k.period < 1 {
		return k, true, fmt.Errorf("%w: --recovery %q: use %s with a fraction such as 0.125 or 1/8 and a number of steps below %d, such as scar:1/8,16",
			kintsugi.ErrUsage, s, scarForms, 1<<17)
	}
	return k, true, nil
}

// parseFraction reads 0.125 or 1/8.
func parseFraction(s string) (float64, error) {
	above, below, ok := strings.Cut(s, "/")
	if !ok {
		return strconv.ParseFloat(s, 64)
	}
	x, err := strconv.ParseUint(above, 10, 32)
	if err != nil {
		return 0, err
	}
	y, err := strconv.ParseUint(below, 10, 32)
	return float64(x) / float64(y), err
}

// every is r·C in whole steps: how often a shard saves.
func (k scarKnobs) every() kintsugi.Step {
	return kintsugi.Step(max(1, math.Round(k.fraction*float64(k.period))))
}

// scar returns the knobs of partial recovery, nil where every loss takes the whole run back. The settings are checked.
func (s *settings) scar() *scarKnobs {
	if k, ok, err := parseScar(s.Recovery); ok && err == nil {
		return &k
	}
	return nil
}
