package job

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

func TestPartialRecoveryIsSetByAFractionAndAPeriod(t *testing.T) {
	for text, want := range map[string]ScarKnobs{
		"scar":                    {Fraction: 0.125, Period: 16},
		"scar:1/8":                {Fraction: 0.125, Period: 16},
		"scar:0.25":               {Fraction: 0.25, Period: 16},
		"scar,64":                 {Fraction: 0.125, Period: 64},
		"scar:1/2,8":              {Fraction: 0.5, Period: 8},
		"scar:1,1":                {Fraction: 1, Period: 1},
		"scar:1/3,1000":           {Fraction: 1.0 / 3, Period: 1000},
		"scar:1/4,random":         {Fraction: 0.25, Period: 16, Choice: scar.Random},
		"scar,roundrobin":         {Fraction: 0.125, Period: 16, Choice: scar.RoundRobin},
		"scar:1/4,32,threshold":   {Fraction: 0.25, Period: 32, Choice: scar.Threshold},
		"scar:adaptive":           {Fraction: 0.125, Period: 16, Adaptive: true},
		"scar:adaptive,threshold": {Fraction: 0.125, Period: 16, Adaptive: true, Choice: scar.Threshold},

		"scar:1/8,16,mostused":              {Fraction: 0.125, Period: 16, Choice: scar.MostUsed},
		"scar:1/8,32,coasting":              {Fraction: 0.125, Period: 32, encoding: kernels.Int8, coasting: true},
		"scar:1/8,32,threshold,shadow:sign": {Fraction: 0.125, Period: 32, Choice: scar.Threshold, encoding: kernels.Sign},
		"scar:1/8,16,coasting:int4":         {Fraction: 0.125, Period: 16, encoding: kernels.Int4, coasting: true},
		"scar,shadow:int4":                  {Fraction: 0.125, Period: 16, encoding: kernels.Int4},
		"scar,coasting:bf16":                {Fraction: 0.125, Period: 16, encoding: kernels.BF16, coasting: true},
		"scar:adaptive,shadow,recentlyused": {Fraction: 0.125, Period: 16, Adaptive: true, Choice: scar.RecentlyUsed, encoding: kernels.Int8},
		"scar:1/4,half":                     {Fraction: 0.25, Period: 16, half: true},
	} {
		if got, ok, err := parseScar(text); got != want || !ok || err != nil {
			t.Errorf("%s: %+v, %v, %v; want %+v", text, got, ok, err, want)
		}
	}
	for _, text := range []string{"scar:", "scar:0", "scar:2", "scar:1/0", "scar:-1", "scar:NaN", "scar:1/8,0", "scar:1/8,", "scar,131072", "scar:1/8,x",
		"scar:1/8,16,", "scar:1/8,16,often", "scar:1/8,16,shadow:", "scar:1/8,16,shadow:fp32", "scar:1/8,16,coasting:topk", "scar:1/8,half,coasting", "scar:shadow,half",
		"scar,random,priority", "scar,half:int8", "scar:1/8,random,16", "scar:adaptive,16", "scar:1/8,16,random,2", "scar:1/8,adaptive"} {
		if _, ok, err := parseScar(text); !ok || !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v, %v; want a usage error", text, ok, err)
		}
	}
	for _, text := range []string{"checkpoint", "none", "scarf", ""} {
		if _, ok, err := parseScar(text); ok || err != nil {
			t.Errorf("%s: %v, %v; it is another word", text, ok, err)
		}
	}
}
