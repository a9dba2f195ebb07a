package job

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// The first pattern that fits the name of a tensor counts, as in a program's rates, and what no
// pattern fits keeps the program's rate. A pattern that fits nothing or comes too late to count, and
// a factor that is no positive number, are refused by name.
func TestRatesAreGivenByPatterns(t *testing.T) {
	plain, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "embed", Shape: []int{4}}, {Name: "block/0/w", Shape: []int{4}}, {Name: "head.w", Shape: []int{4}}, {Name: "head.b", Shape: []int{2}}})
	if err != nil {
		t.Fatal(err)
	}
	program, err := plain.WithRates(map[string]float32{"embed": 0.1, "head.b": 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rates  []string
		layout *kintsugi.Layout
		want   []float32
		err    string
	}{
		{nil, program, []float32{0.1, 1, 1, 5}, ""},
		{[]string{"head.*=10"}, plain, []float32{1, 1, 10, 10}, ""},
		{[]string{"head.w=2", "head.*=10", "*=0.5"}, program, []float32{0.5, 0.5, 2, 10}, ""},
		{[]string{"block*=3"}, program, []float32{0.1, 3, 1, 5}, ""},
		{[]string{"block/?/[vw]=3"}, plain, []float32{1, 3, 1, 1}, ""},
		{[]string{"*=1"}, program, []float32{1, 1, 1, 1}, ""},
		{[]string{"head=2"}, plain, nil, `fits "head"; it has embed, block/0/w, head.w, head.b`},
		{[]string{"*=0.5", "head.*=10"}, plain, nil, `--rate head.*=10: every tensor that fits "head.*", such as head.b, fits an earlier --rate`},
		{[]string{"head.w=2", "head.b=2", "head.*=10"}, plain, nil, "put this one before it"},
		{[]string{"*=0"}, plain, nil, "must be a positive number"},
		{[]string{"*=NaN"}, plain, nil, "must be a positive number"},
		{[]string{"*=1e99"}, plain, nil, "must be a positive number"},
		{[]string{"*"}, plain, nil, "PATTERN=FACTOR"},
		{[]string{"=2"}, plain, nil, "PATTERN=FACTOR"},
		{[]string{"[=2"}, plain, nil, "no pattern"},
	} {
		got, err := (&Settings{Rates: c.rates}).rated(c.layout)
		if c.err != "" {
			if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v; want %q", c.rates, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.rates, err)
			continue
		}
		var rates []float32
		for i := range got.Tensors {
			rates = append(rates, got.Rate(i))
		}
		if !slices.Equal(rates, c.want) || got.Uneven() != slices.ContainsFunc(c.want, func(r float32) bool { return r != 1 }) {
			t.Errorf("%q: rates %v, uneven %t; want %v", c.rates, rates, got.Uneven(), c.want)
		}
	}
}
