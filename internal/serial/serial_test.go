package serial_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/serial"
)

const (
	workers = 3
	steps   = 6
)

// event is an operation before it is noted, so that a test can change it.
type event struct {
	slot          kintsugi.Slot
	pull          bool
	version, step kintsugi.Step
	sum           uint64
	call, end     time.Duration
}

func sumOf(v kintsugi.Step) uint64 { return 1000 + 7*uint64(v) }

// orderly returns what the workers of a single server see, whose answers take time.
func orderly(rng *rand.Rand) (events []event) {
	now := time.Duration(0)
	soon := func() time.Duration { return time.Duration(1 + rng.IntN(50)) }
	for v := range kintsugi.Step(steps) {
		released := now
		for slot := range kintsugi.Slot(workers) {
			pulled := released + soon()
			events = append(events, event{slot: slot, pull: true, version: v, sum: sumOf(v), call: max(0, released-soon()), end: pulled})
			pushed := pulled + soon()
			events = append(events, event{slot: slot, version: v, step: v + 1, call: pushed})
			now = max(now, pushed+soon())
		}
		for i := range events {
			if e := &events[i]; !e.pull && e.version == v {
				e.end = now + soon()
			}
		}
	}
	return events
}

func check(events []event) error {
	h := serial.History{Workers: workers}
	for v := range kintsugi.Step(steps + 1) {
		h.Sums = append(h.Sums, sumOf(v))
	}
	for _, e := range events {
		if e.pull {
			h.Pulled(e.slot, e.version, e.sum, e.call, e.end)
		} else {
			h.Pushed(e.slot, e.version, e.step, e.call, e.end)
		}
	}
	return h.Check(10 * time.Second)
}

func TestWhatOneServerDoesIsInOrder(t *testing.T) {
	for seed := range uint64(50) {
		if err := check(orderly(rand.New(rand.NewPCG(seed, 1)))); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// Each kind of wrong history is found.
func TestWhatNoServerDoesIsNot(t *testing.T) {
	for name, spoil := range map[string]func(events []event) []event{
		"a version is read that was over before the read began": func(events []event) []event {
			last := events[len(events)-1].end
			return append(events, event{pull: true, version: steps - 2, sum: sumOf(steps - 2), call: last + 1, end: last + 2})
		},
		"a version is read that lacks a gradient": func(events []event) []event {
			for i, e := range events {
				if !e.pull && e.version == 2 && e.slot == 1 {
					return append(events[:i:i], events[i+1:]...)
				}
			}
			return nil
		},
		"a version is read before its last gradient was pushed": func(events []event) []event {
			first := time.Duration(1 << 60)
			for _, e := range events {
				if !e.pull && e.version == 3 {
					first = min(first, e.call)
				}
			}
			return append(events, event{pull: true, version: 4, sum: sumOf(4), call: first - 2, end: first - 1})
		},
		"a version has other values than its steps lead to": func(events []event) []event {
			for i, e := range events {
				if e.pull && e.version == 4 {
					events[i].sum++
					break
				}
			}
			return events
		},
		"a worker is told of a step that is not there": func(events []event) []event {
			for i, e := range events {
				if !e.pull && e.version == steps-1 {
					events[i].step++
				}
			}
			return events
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := check(spoil(orderly(rand.New(rand.NewPCG(1, 1))))); !errors.Is(err, serial.ErrOutOfOrder) {
				t.Errorf("got %v, want %v", err, serial.ErrOutOfOrder)
			}
		})
	}
}

// A push whose answer nobody received may count or not, once or repeated.
func TestAPushWithoutAnAnswerMayBeRepeated(t *testing.T) {
	events := orderly(rand.New(rand.NewPCG(2, 1)))
	for _, e := range events {
		if !e.pull && e.version == 2 {
			e.step = 0
			events = append(events, e)
		}
	}
	if err := check(events); err != nil {
		t.Error(err)
	}
}
