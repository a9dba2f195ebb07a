package compress

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// maxRank bounds PowerSGD: a payload of higher rank would hardly be smaller than the chunk.
const maxRank = 64

const withoutFeedback = "-nofeedback"

// Specs returns the forms that [Parse] accepts, for messages and help.
func Specs() []string {
	return []string{
		"fp32", "bf16", "fp16", "int8", "int8:stochastic", "sign", "topk:DENSITY", "topk:DENSITY:fp32", "powersgd:RANK", "sparse",
	}
}

// Parse returns the codec that spec names. A spec is one of [Specs], where DENSITY is the fraction
// of the values that is sent, in (0, 1], and RANK is 1 to 64. "-nofeedback" may follow: then the
// residual of a lossy codec is forgotten. "+s2", "+huff0" or "+auto" may follow for a lossless
// stage. For any other spec, Parse returns an error that wraps kintsugi.ErrUsage and lists the
// forms.
func Parse(spec string) (Codec, error) {
	rest, pack, _ := strings.Cut(spec, "+")
	c := &codec{}
	switch {
	case rest == spec:
	case policies[pack] == never:
		return nil, usage(spec, "the lossless stage is +s2, +huff0 or +auto")
	default:
		c.pack = policies[pack]
	}
	rest, c.noFeedback = strings.CutSuffix(rest, withoutFeedback)
	e, canonical, problem := parseEncoder(rest)
	if problem != "" {
		return nil, usage(spec, problem)
	}
	c.encoder, c.name = e, canonical
	if c.noFeedback {
		if c.Exact() {
			return nil, usage(spec, rest+" leaves nothing out, so there is no feedback to turn off")
		}
		c.name += withoutFeedback
	}
	if c.pack != never {
		c.name += "+" + pack
	}
	return c, nil
}

func usage(spec, problem string) error {
	return fmt.Errorf("%w: codec %q: %s; use one of %s, then %s, then +s2, +huff0 or +auto, the last two if wanted",
		kintsugi.ErrUsage, spec, problem, strings.Join(Specs(), ", "), withoutFeedback)
}

// parseEncoder reads the part of a spec before its suffixes. problem says what is wrong with it;
// empty: nothing.
func parseEncoder(spec string) (e encoder, canonical, problem string) {
	name, arg, hasArg := strings.Cut(spec, ":")
	switch name {
	case "topk":
		return parseTopK(arg)
	case "powersgd":
		rank, err := strconv.Atoi(arg)
		if err != nil || rank < 1 || rank > maxRank {
			return nil, "", fmt.Sprintf("the rank %q is not a whole number from 1 to %d", arg, maxRank)
		}
		return powerSGD{rank}, fmt.Sprintf("powersgd:%d", rank), ""
	}
	e, ok := map[string]encoder{
		"fp32": fp32{}, "bf16": halves{kernels.BF16}, "fp16": halves{kernels.FP16},
		"int8": int8Blocks{}, "int8:stochastic": int8Blocks{stochastic: true}, "sign": signs{},
		"sparse": named{},
	}[spec]
	switch {
	case ok:
		return e, spec, ""
	case hasArg:
		return nil, "", fmt.Sprintf("%s takes no %q", name, arg)
	default:
		return nil, "", "there is no such codec"
	}
}

func parseTopK(arg string) (encoder, string, string) {
	arg, values, named := strings.Cut(arg, ":")
	density, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(density > 0 && density <= 1) {
		return nil, "", fmt.Sprintf("the density %q is not a number above 0 and at most 1", arg)
	}
	k := topK{density: density, values: kernels.Sparse16}
	canonical := "topk:" + strconv.FormatFloat(density, 'g', -1, 64)
	switch {
	case !named:
	case values == "fp32":
		k.values = kernels.Sparse32
		canonical += ":fp32"
	default:
		return nil, "", fmt.Sprintf("the values are sent as bf16, or as fp32, not %q", values)
	}
	return k, canonical, ""
}
