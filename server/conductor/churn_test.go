package conductor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// Workers join, leave, crash and come back at random for a thousand steps, down to none and up to
// all. Every step keeps the bounds of its preset: which gradients count, how many of each worker,
// how old they are, and that no worker is further ahead than the lead allows. The world makes these
// checks.
func TestWorkersComeAndGoForAThousandSteps(t *testing.T) {
	steps := kintsugi.Step(1000)
	if testing.Short() {
		steps = 100
	}
	for i, preset := range []string{"bsp", "backup:1", "async:discount", "ssp:0", "ssp:3", "rennala:5", "rennala:6,limit=2,credit=3", "backup:2,staleness=2,lead=4"} {
		t.Run(preset, func(t *testing.T) {
			churn(t, preset, steps, uint64(i))
		})
	}
}

func churn(t *testing.T, preset string, steps kintsugi.Step, seed uint64) {
	const slots = 5
	consistency, err := agg.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{world: newWorld(t, conductor.Config{
		Line: 1, View: 1, Model: 7, Slots: slots, Consistency: consistency, Steps: steps,
		Schedule:   conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.1},
		StartGrace: 3 * time.Second, LeaveGrace: 2 * time.Second,
	}, []int{1, 1})}
	random := rand.New(rand.NewPCG(seed, 1))
	lives := make([]kintsugi.Incarnation, slots)
	b.chosen = b.newConductor(1)
	joins, leaves := 0, 0
	b.join(0, lives)
	for moves := 0; !b.chosen.Finished(); moves++ {
		if moves > 400*int(steps) {
			t.Fatalf("seed %d: no end in sight:\n%s", seed, b.picture())
		}
		slot := kintsugi.Slot(random.IntN(slots))
		switch luck := random.IntN(80); {
		case luck == 0 && b.leave(slot):
			leaves++
		case luck < 3 && b.join(slot, lives):
			joins++
		case luck < 5:
			b.tick(time.Duration(random.IntN(1500)) * time.Millisecond)
		}
		if all := b.moves(); len(all) > 0 {
			all[random.IntN(len(all))].do()
		} else {
			b.tick(time.Second)
		}
	}
	b.checkCounted()
	if n := len(b.replica[0].steps); n != int(steps) {
		t.Errorf("the run ends after %d steps", n)
	}
	if joins < int(steps)/25 || leaves < int(steps)/25 {
		t.Errorf("only %d joined and %d left", joins, leaves)
	}
	t.Logf("%d joined, %d left: %s", joins, leaves, fmt.Sprint(lives))
}

// join starts the next life of a worker, unless the worker is there.
func (b *bench) join(slot kintsugi.Slot, lives []kintsugi.Incarnation) bool {
	for _, h := range b.hands {
		if h.slot == slot {
			return false
		}
	}
	lives[slot]++
	b.hands = append(b.hands, &hand{slot: slot, incarnation: lives[slot]})
	return true
}

// leave ends a worker, whatever it is doing. The conductor learns of it later, from the stream.
func (b *bench) leave(slot kintsugi.Slot) bool {
	for i, h := range b.hands {
		if h.slot == slot {
			b.endSession(h)
			b.hands = append(b.hands[:i:i], b.hands[i+1:]...)
			return true
		}
	}
	return false
}
