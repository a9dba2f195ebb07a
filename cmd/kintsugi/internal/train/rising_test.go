package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestATrainingThatLosesWhatItWonIsTold(t *testing.T) {
	falls := func(i int) float64 { return 2 * math.Exp(-float64(i)/100) }
	after := func(step int, then func(i int) float64) func(i int) float64 {
		return func(i int) float64 {
			if i < step {
				return falls(i)
			}
			return then(i)
		}
	}
	for _, c := range []struct {
		name string
		loss func(i int) float64
		told int // the first step at which it may be reported; 0: never

		restored int // the step at which a restore takes all steps back; 0: none
	}{
		{"it falls", falls, 0, 0},
		{"all steps are lost, and made up for", after(1000, func(i int) float64 { return 2 * math.Exp(-float64(i-1000)/1000) }), 0, 1000},
		{"it never falls", func(int) float64 { return 2 }, 0, 0},
		{"it rises from the beginning", func(i int) float64 { return 2 + float64(i)/100 }, 0, 0},
		{"it collapses", after(1000, func(int) float64 { return 2.3 }), 1000 + risingLast, 0},
		{"it is not finite for a while, and collapses", after(1000, func(i int) float64 {
			if i < 1100 {
				return math.NaN()
			}
			return 2.3
		}), 1100 + risingLast, 0},
		{"a shard came back older", after(1000, func(i int) float64 { return 3 * math.Exp(-float64(i-1000)/50) }), 0, 0},
		{"single batches are bad", after(1000, func(i int) float64 {
			if i%40 == 0 {
				return 10
			}
			return 0.01
		}), 0, 0},
		{"losses are below zero, and rise", func(i int) float64 {
			if i < 500 {
				return -float64(i)
			}
			return -50
		}, 500 + risingLast, 0},
	} {
		var r rising
		draw := rand.New(rand.NewPCG(1, 1))
		told, back := 0, 0
		for i := range 3000 {
			if i == c.restored {
				back = i
			}
			if r.step(kintsugi.Step(i-back+1), c.loss(i)*(1+0.1*draw.NormFloat64())) {
				if told > 0 {
					t.Errorf("%s: told at %d and again at %d", c.name, told, i)
				}
				told = i
			}
		}
		if (told > 0) != (c.told > 0) || told < c.told || told > c.told+100 {
			t.Errorf("%s: told at %d; want at %d or soon after", c.name, told, c.told)
		}
	}
}
