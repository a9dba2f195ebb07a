package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
	"github.com/kintsugi-ml/kintsugi/server"
)

// ScarKnobs are the settings of --recovery scar besides partial restores: how much of the model the
// running checkpoint saves at once, how often, and which part.
type ScarKnobs struct {
	Fraction float64       // r: share of the model's bytes in one save
	Period   kintsugi.Step // C: steps in which as many bytes are saved as the model has
	Choice   scar.Choice
	Adaptive bool // fraction and period follow the run's measurements
	Behind   bool // secondary: needed only if replicas or memory outside the process fail

	encoding kernels.Encoding // of increments; FP32: chunks are saved whole
	coasting bool             // saved values are extrapolated between two increments
	half     bool             // servers hold the saved values as bf16
}

// The defaults: an eighth of the model is the fraction behind the best results of the paper. With C
// = 16, a save is due every second step. If all chunks move alike, the mean age of a chunk is then
// half of C.
const (
	ScarFraction = 1.0 / 8
	ScarPeriod   = 16
)

// scarForms lists the forms of --recovery scar.
const scarForms = "scar[:FRACTION|adaptive][,STEPS][,CHOICE][,shadow|coasting[:CODEC]|half]"

// parseScar parses one of scarForms. ok is false for other words. A fraction outside (0, 1], or a
// period of less than one step, is an ErrUsage.
func parseScar(s string) (k ScarKnobs, ok bool, err error) {
	rest, ok := strings.CutPrefix(s, "scar")
	if !ok || rest != "" && rest[0] != ':' && rest[0] != ',' {
		return k, false, nil
	}
	k = ScarKnobs{Fraction: ScarFraction, Period: ScarPeriod}
	fraction, more, hasMore := strings.Cut(strings.TrimPrefix(rest, ":"), ",")
	switch {
	case fraction == "adaptive":
		k.Adaptive = true
	case fraction != "" || strings.HasPrefix(rest, ":"):
		k.Fraction, err = ParseFraction(fraction)
	}
	if err == nil && hasMore {
		err = k.parseMore(more)
	}
	if err != nil || !(k.Fraction > 0 && k.Fraction <= 1) || k.Period < 1 {
		return k, true, fmt.Errorf("%w: --recovery %q: use %s with a fraction such as 0.125 or 1/8, a number of steps below %d, one of %s, and codecs int8, int4, sign or bf16, such as scar:1/8,16,priority,coasting:int8",
			kintsugi.ErrUsage, s, scarForms, 1<<17, strings.Join(scarChoices(), ", "))
	}
	return k, true, nil
}

// parseMore parses [C] and the words after it.
func (k *ScarKnobs) parseMore(s string) error {
	words := strings.Split(s, ",")
	if n, err := strconv.ParseUint(words[0], 10, 17); err == nil && !k.Adaptive {
		k.Period, words = kintsugi.Step(n), words[1:]
	}
	chosen, held := false, false
	for _, word := range words {
		name, codec, coded := strings.Cut(word, ":")
		switch again := &held; {
		case slices.Contains(scarChoices(), word):
			choice, err := scar.ParseChoice(word)
			if again = &chosen; *again || err != nil {
				return fmt.Errorf("a second choice, %q", word)
			}
			k.Choice, *again = choice, true
		case word == "half" && !*again:
			k.half, *again = true, true
		case (name == "shadow" || name == "coasting") && !*again:
			if codec == "" && !coded {
				codec = "int8"
			}
			i := slices.IndexFunc(increments, func(e kernels.Encoding) bool { return e.String() == codec })
			if i < 0 {
				return fmt.Errorf("increments are not sent in %q", codec)
			}
			k.encoding, k.coasting, *again = increments[i], name == "coasting", true
		default:
			return fmt.Errorf("%q is no number of steps and no choice", word)
		}
	}
	return nil
}

// increments are the encodings of differences to the saved values.
var increments = []kernels.Encoding{kernels.Int8, kernels.Int4, kernels.Sign, kernels.BF16}

// increments returns how chunks are saved in increments, or nil if they are saved whole.
func (k *ScarKnobs) increments() *ckpt.Increments {
	if k.encoding == kernels.FP32 {
		return nil
	}
	return &ckpt.Increments{Encoding: k.encoding, Coasts: k.Copy().Coasts}
}

// onHost reports whether shards must be in host memory.
func (k *ScarKnobs) onHost() bool {
	return k.half || k.encoding != kernels.FP32 || k.Choice == scar.MostUsed || k.Choice == scar.RecentlyUsed
}

// Copy returns how servers hold the saved values. Without a running checkpoint, k is nil and they
// hold none.
func (k *ScarKnobs) Copy() server.Copy {
	if k == nil {
		return server.Copy{}
	}
	c := server.Copy{Half: k.half}
	if k.coasting {
		c.Coasts = ScarAges * k.Period
	}
	return c
}

// Bytes returns the size of a saved chunk of n values with the given number of arrays of state.
func (k *ScarKnobs) Bytes(n, arrays int) int64 {
	if c := k.increments(); c != nil {
		return c.Bytes(n, arrays)
	}
	return int64(4 * n * (1 + arrays))
}

// scarChoices lists the choices of chunks.
func scarChoices() []string {
	var names []string
	for _, c := range []scar.Choice{scar.Priority, scar.Threshold, scar.RoundRobin, scar.Random, scar.MostUsed, scar.RecentlyUsed} {
		names = append(names, c.String())
	}
	return names
}

// ParseFraction parses a fraction such as 0.125 or 1/8.
func ParseFraction(s string) (float64, error) {
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

// ScarAges is the largest age of a saved chunk, in periods. It is large enough that it takes little
// capacity from chunks that move.
const ScarAges = 4

// ScarLongest is the period if failures are too rare to be measured: it is about the most that a run
// then loses, in steps.
const ScarLongest = 256
