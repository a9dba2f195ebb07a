package report

import (
	"math"
	"slices"
	"testing"
)

func TestNumbersAreWrittenForReaders(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(61706), "61,706"}, {count(uint64(1234567)), "1,234,567"}, {count(-1234), "-1,234"},
		{digits(0.0693277), "0.06933"}, {digits(2.5), "2.500"}, {digits(123.456), "123.5"}, {digits(61706), "61,706"},
		{digits(1e-9), "1.00e-09"}, {digits(math.NaN()), "–"}, {digits(0), "0"},
		{percent(0.9781), "97.8 %"}, {percent(math.NaN()), "–"},
		{seconds(0.0754), "75 ms"}, {seconds(3.772), "3.77 s"}, {seconds(45.33), "45.3 s"}, {seconds(59.96), "1 min"},
		{seconds(252), "4 min 12 s"}, {seconds(3600), "1 h"}, {seconds(11100), "3 h 5 min"}, {seconds(47*3600 + 3540), "47 h 59 min"}, {seconds(172800), "2 d"}, {seconds(2089690), "24 d 4 h 28 min"}, {seconds(259260), "3 d 0 h 1 min"}, {seconds(0.9999), "1.00 s"}, {seconds(0), "0 s"},
		{plural(1, "step"), "1 step"}, {plural(2000, "step"), "2,000 steps"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func texts(ts []tick) []string {
	var out []string
	for _, t := range ts {
		out = append(out, t.label)
	}
	return out
}

func TestTicksStandAtRoundValues(t *testing.T) {
	axis := func(lo, hi float64) scale { return newScale(lo, hi, 0, 100) }
	logAxis := axis(0.03, 2)
	logAxis.log = true
	for name, tt := range map[string]struct {
		got  []tick
		want []string
	}{
		"loss":       {axis(0, 2.3).linearTicks(5, nil), []string{"0.0", "0.5", "1.0", "1.5", "2.0"}},
		"negative":   {axis(-1, 1).linearTicks(4, nil), []string{"-1.0", "-0.5", "0.0", "0.5", "1.0"}},
		"small":      {axis(0.01, 0.014).linearTicks(4, nil), []string{"0.010", "0.011", "0.012", "0.013", "0.014"}},
		"log":        {logAxis.logTicks(), []string{"0.05", "0.1", "0.2", "0.5", "1", "2"}},
		"few steps":  {axis(0, 3).stepTicks(10), []string{"0", "1", "2", "3"}},
		"steps":      {axis(0, 600).stepTicks(6), []string{"0", "100", "200", "300", "400", "500", "600"}},
		"many steps": {axis(0, 100_000).stepTicks(5), []string{"0", "20k", "40k", "60k", "80k", "100k"}},
		"parts":      {axis(0, 1).timeTicks(5), []string{"0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s"}},
		"seconds":    {axis(0, 45).timeTicks(5), []string{"0", "10 s", "20 s", "30 s", "40 s"}},
		"minutes":    {axis(0, 190).timeTicks(5), []string{"0", "1 min", "2 min", "3 min"}},
		"halves":     {axis(0, 150).timeTicks(5), []string{"0", "30 s", "1 min", "1:30 min", "2 min", "2:30 min"}},
		"hours":      {axis(0, 9000).timeTicks(5), []string{"0", "30 min", "1 h", "1:30 h", "2 h", "2:30 h"}},
		"days":       {axis(0, 9*86400).timeTicks(5), []string{"0", "2 d", "4 d", "6 d", "8 d"}},
	} {
		if got := texts(tt.got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestPlainSettingsBecomeATableAndOthersStayAsTheyAre(t *testing.T) {
	got := settings("# a comment\nworkers: 4\noptimizer:\n  rule: \"adam\"\n  beta: 0.9\nfaults:\n  - kill server/0 at step 5\n  - 'kill worker/1 at 20s'\nout: runs/a:b\nnone:\n")
	want := []setting{{"workers", "4"}, {"optimizer.rule", "adam"}, {"optimizer.beta", "0.9"},
		{"faults", "kill server/0 at step 5, kill worker/1 at 20s"}, {"out", "runs/a:b"}, {"none", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, text := range []string{"", "{a: 1}", "- a\n- b\n", "text: |\n  more\n", "just words\n", "a:b\n"} {
		if got := settings(text); got != nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestThinKeepsMeanAndExtremes(t *testing.T) {
	values := []float64{1, 3, math.NaN(), 10, 20, math.Inf(1)}
	e := thin(len(values), 2, 0, 6, func(i int) float64 { return float64(i) }, func(i int) float64 { return values[i] })
	if len(e.mean) != 2 || e.mean[0] != (point{0.5, 2}) || e.mean[1] != (point{3.5, 15}) {
		t.Errorf("means %v", e.mean)
	}
	if e.low[1].y != 10 || e.high[1].y != 20 {
		t.Errorf("extremes %v, %v", e.low, e.high)
	}
}
