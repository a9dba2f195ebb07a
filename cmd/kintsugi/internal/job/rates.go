package job

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// rated returns a layout whose tensors have the factors of --rate. The first pattern that fits the
// name of a tensor counts; tensors that none fits keep what they have in l, by the program's rates.
// A pattern that counts for no tensor is a usage error.
func (s *Settings) rated(l *kintsugi.Layout) (*kintsugi.Layout, error) {
	if len(s.Rates) == 0 {
		return l, nil
	}
	factors, given := make(map[string]float32), make(map[string]bool)
	var names []string
	for i, t := range l.Tensors {
		factors[t.Name], names = l.Rate(i), append(names, t.Name)
	}
	for _, text := range s.Rates {
		pattern, factor, err := parseRate(text)
		if err != nil {
			return nil, err
		}
		counts, taken := false, ""
		for _, name := range names {
			switch {
			case !fitsName(pattern, name):
			case given[name]:
				taken = name
			default:
				counts, given[name], factors[name] = true, true, factor
			}
		}
		switch {
		case !counts && taken != "":
			return nil, fmt.Errorf("%w: --rate %s: every tensor that fits %q, such as %s, fits an earlier --rate, and the first one counts; put this one before it", kintsugi.ErrUsage, text, pattern, taken)
		case !counts:
			return nil, fmt.Errorf("%w: --rate %s: no tensor of %s fits %q; it has %s", kintsugi.ErrUsage, text, s.Model, pattern, strings.Join(names, ", "))
		}
	}
	return l.WithRates(factors)
}

// parseRate reads PATTERN=FACTOR.
func parseRate(text string) (pattern string, factor float32, err error) {
	at := strings.LastIndexByte(text, '=')
	if at <= 0 {
		return "", 0, fmt.Errorf("%w: --rate %q: use PATTERN=FACTOR, such as head.*=10", kintsugi.ErrUsage, text)
	}
	pattern = text[:at]
	f, err := strconv.ParseFloat(text[at+1:], 32)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		return "", 0, fmt.Errorf("%w: --rate %q: %q times the learning rate; it must be a positive number", kintsugi.ErrUsage, text, text[at+1:])
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return "", 0, fmt.Errorf("%w: --rate %q: %q is no pattern: use *, ? and [a-z]", kintsugi.ErrUsage, text, pattern)
	}
	return pattern, float32(f), nil
}

// fitsName reports whether a pattern fits the whole name of a tensor. * also stands for slashes, as
// in a program's rates.
func fitsName(pattern, name string) bool {
	plain := func(s string) string { return strings.ReplaceAll(s, "/", ".") }
	fits, _ := path.Match(plain(pattern), plain(name)) // the pattern was checked
	return fits
}
