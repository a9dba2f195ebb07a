package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

// scarKnobs are what --recovery scar decides besides partial restores: how much of the model the running checkpoint
// takes at once, how often, and which part of it.
type scarKnobs struct {
	fraction float64       // r: of the bytes of the model, in one save
	period   kintsugi.Step // C: steps in which as many bytes are saved as the model has
	choice   scar.Choice
	adaptive bool // fraction and period follow what the run has measured
	behind   bool // it stands behind replicas or memory outside the process, and is needed where these fail
}

// The defaults: an eighth of the model is the fraction behind the best results of the paper. With
// C = 16 a save is due every second step; half of C is then the age of a chunk where all move alike.
const (
	scarFraction = 1.0 / 8
	scarPeriod   = 16
)

// scarForms says what --recovery scar may be.
const scarForms = "scar[:FRACTION][,STEPS][,CHOICE], scar:adaptive[,CHOICE]"

// parseScar reads scar[:r][,C][,CHOICE] and scar:adaptive[,CHOICE]. ok is false for another word; other numbers than a fraction
// in (0, 1] and a period of at least a step, and choices that need more than a run has, are an ErrUsage.
func parseScar(s string) (k scarKnobs, ok bool, err error) {
	rest, ok := strings.CutPrefix(s, "scar")
	if !ok || rest != "" && rest[0] != ':' && rest[0] != ',' {
		return k, false, nil
	}
	k = scarKnobs{fraction: scarFraction, period: scarPeriod}
	fraction, more, hasMore := strings.Cut(strings.TrimPrefix(rest, ":"), ",")
	switch {
	case fraction == "adaptive":
		k.adaptive = true
	case fraction != "" || strings.HasPrefix(rest, ":"):
		k.fraction, err = parseFraction(fraction)
	}
	if err == nil && hasMore {
		err = k.parseMore(more)
	}
	if err != nil || !(k.fraction > 0 && k.fraction <= 1) || k.period < 1 {
		return k, true, fmt.Errorf("%w: --recovery %q: use %s with a fraction such as 0.125 or 1/8, a number of steps below %d and one of %s, such as scar:1/8,16,priority",
			kintsugi.ErrUsage, s, scarForms, 1<<17, strings.Join(scarChoices(), ", "))
	}
	return k, true, nil
}

// parseMore reads [C][,CHOICE].
func (k *scarKnobs) parseMore(s string) error {
	steps, choice, both := strings.Cut(s, ",")
	if n, err := strconv.ParseUint(steps, 10, 17); err == nil && !k.adaptive {
		if k.period = kintsugi.Step(n); !both {
			return nil
		}
	} else if choice = s; both {
		return fmt.Errorf("%q is no number of steps and no choice", s)
	}
	if !slices.Contains(scarChoices(), choice) {
		return fmt.Errorf("%q is no choice", choice)
	}
	var err error
	k.choice, err = scar.ParseChoice(choice)
	return err
}

// scarChoices are the choices that a run has: nobody counts accesses in one.
func scarChoices() []string {
	var names []string
	for _, c := range []scar.Choice{scar.Priority, scar.Threshold, scar.RoundRobin, scar.Random} {
		names = append(names, c.String())
	}
	return names
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
