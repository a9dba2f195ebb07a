package conductor

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Decay says how the learning rate falls after the warm-up. The zero value leaves the rate as it
// is. Decays can be compared.
type Decay struct {
	Form DecayForm
	// Linear and Cosine: the part of the learning rate to which it falls by the end of the run.
	// Drops: the part that each drop leaves.
	Part float64
	// Linear and Cosine: the share of the steps after the warm-up in which the rate falls, at the
	// end of the run. 0: all of them.
	Last float64
	At   [maxDrops]kintsugi.Step // Drops: each is the last step before a drop; ascending, then zeros
}

// DecayForm is the curve that the learning rate follows.
type DecayForm uint8

// The forms. T steps follow the warm-up, and the rate falls in the last F = Last·T of them. With
// x = max(0, t−1−(T−F))/F, step t of the T, from 1, has this factor of the learning rate:
const (
	Constant DecayForm = iota // 1
	Linear                    // Part + (1−Part)·(1−x)
	Cosine                    // Part + (1−Part)·(½ + ½·cos(π·x))
	Drops                     // Part to the number of the steps At that are before it, which count from the start of the run
)

// maxDrops is how many drops a run can have, so that decays can be compared.
const maxDrops = 8

// In each syntax, the first group is the part, and the second one is the share or the steps.
var decaySyntax = [...]*regexp.Regexp{
	Constant: regexp.MustCompile(`^constant()()$`),
	Linear:   regexp.MustCompile(`^linear(?::([^,]+))?(?:,last=(.+))?$`),
	Cosine:   regexp.MustCompile(`^cosine(?::([^,]+))?(?:,last=(.+))?$`),
	Drops:    regexp.MustCompile(`^drop:([^@]+)@(.+)$`),
}

// DecaySyntax is what ParseDecay understands.
const DecaySyntax = "constant, linear[:PART][,last=SHARE], cosine[:PART][,last=SHARE] or drop:PART@STEP[,STEP…]"

// ParseDecay parses a decay in DecaySyntax. A wrong text is a usage error.
func ParseDecay(text string) (d Decay, err error) {
	for form, syntax := range decaySyntax {
		m := syntax.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		d.Form = DecayForm(form)
		if m[1] != "" {
			if d.Part, err = strconv.ParseFloat(m[1], 64); err != nil || !(d.Part >= 0 && d.Part < 1) {
				return Decay{}, fmt.Errorf("%w: learning-rate decay %q: %q must be a part of the learning rate, at least 0 and less than 1", kintsugi.ErrUsage, text, m[1])
			}
		}
		switch {
		case d.Form == Drops:
			err = d.parseDrops(m[2])
		case m[2] != "":
			if d.Last, err = strconv.ParseFloat(m[2], 64); err != nil || !(d.Last > 0 && d.Last <= 1) {
				err = fmt.Errorf("%q must be the share of the steps in which the rate falls, more than 0 and at most 1", m[2])
			}
		}
		if err != nil {
			return Decay{}, fmt.Errorf("%w: learning-rate decay %q: %w", kintsugi.ErrUsage, text, err)
		}
		return d, nil
	}
	return Decay{}, fmt.Errorf("%w: learning-rate decay %q is unknown; use %s", kintsugi.ErrUsage, text, DecaySyntax)
}

// CoarserDecay returns the text of a decay for a run in which n steps of the one that text is for
// are one: its drops come after an nth of the steps, rounded up. A text that is not one of drops is
// returned as it is.
func CoarserDecay(text string, n int) string {
	d, err := ParseDecay(text)
	if err != nil || d.Form != Drops {
		return text
	}
	head, _, _ := strings.Cut(text, "@")
	var list []string
	before := kintsugi.Step(0)
	for _, at := range d.At {
		if at == 0 {
			break
		}
		before = max(before+1, (at+kintsugi.Step(n)-1)/kintsugi.Step(n)) // two drops may come in one step; they stay two
		list = append(list, strconv.FormatUint(uint64(before), 10))
	}
	return head + "@" + strings.Join(list, ",")
}

func (d *Decay) parseDrops(list string) error {
	before := kintsugi.Step(0)
	for i, text := range strings.Split(list, ",") {
		at, err := strconv.ParseUint(text, 10, 64)
		switch {
		case err != nil || kintsugi.Step(at) <= before:
			return fmt.Errorf("%q must be a step after step %d", text, before)
		case i == maxDrops:
			return fmt.Errorf("a rate drops %d times at most", maxDrops)
		}
		before = kintsugi.Step(at)
		d.At[i] = before
	}
	return nil
}

// factor returns the part of the learning rate that a step has. The steps after a warm-up are those
// from first to last; 0 for last means that the run has no end.
func (d Decay) factor(step, first, last kintsugi.Step) float64 {
	if d.Form == Drops {
		f := 1.0
		for _, at := range d.At {
			if at > 0 && step > at {
				f *= d.Part
			}
		}
		return f
	}
	if d.Form == Constant || last < first {
		return 1
	}
	all := float64(last - first + 1)
	falls := all
	if d.Last > 0 {
		falls *= d.Last
	}
	x := min(1, max(0, float64(step-first)-(all-falls))/falls)
	left := 1 - x
	if d.Form == Cosine {
		left = 0.5 + 0.5*math.Cos(math.Pi*x)
	}
	return d.Part + float64((1-d.Part)*left) // rounded once more, so that no compiler fuses the product and the sum
}
