package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Sample is the recorded time of one gradient.
type Sample struct {
	Slot    int
	Seconds float64 // positive

	// GivenUp says that the worker was interrupted after that time. What the gradient would have
	// taken is not known: it is taken to be what another one of the same worker took that was
	// longer, each of them in turn. Where there is none the time itself stands for it, which makes
	// that worker faster than it was.
	GivenUp bool
}

// Recorded returns times that repeat samples, of each slot in their order. Each worker takes the times of the slot with
// its number, modulo that of slots, in a random rotation, over and over. Slots below the largest one that have no
// samples are a usage error, as are seconds that are not positive.
func Recorded(samples []Sample) (Times, error) {
	t := Times{spec: "recorded"}
	var bySlot [][]Sample
	for _, s := range samples {
		if s.Slot < 0 || s.Slot > 1<<20 || !(s.Seconds > 0) || math.IsInf(s.Seconds, 0) {
			return t, fmt.Errorf("%w: times: slot %d took %v seconds; slots begin at 0 and seconds are positive", kintsugi.ErrUsage, s.Slot, s.Seconds)
		}
		for len(bySlot) <= s.Slot {
			bySlot = append(bySlot, nil)
		}
		bySlot[s.Slot] = append(bySlot[s.Slot], s)
	}
	if len(bySlot) == 0 {
		return t, fmt.Errorf("%w: times: there are none", kintsugi.ErrUsage)
	}
	unknown := 0
	for slot, list := range bySlot {
		if len(list) == 0 {
			return t, fmt.Errorf("%w: times: there are none of slot %d, below the largest one", kintsugi.ErrUsage, slot)
		}
		trace, without := complete(list)
		t.traces = append(t.traces, trace)
		unknown += without
	}
	if unknown > 0 {
		t.spec = fmt.Sprintf("recorded (of %d gradients it is not known how long they would have taken)", unknown)
	}
	return t, nil
}

// complete returns the times of one worker, with those that were given up taken from longer ones,
// and for how many there was none.
func complete(list []Sample) (trace []float64, unknown int) {
	var whole []float64
	for _, s := range list {
		if !s.GivenUp {
			whole = append(whole, s.Seconds)
		}
	}
	next := 0
	for _, s := range list {
		took := s.Seconds
		if s.GivenUp {
			unknown++
			for i := range whole {
				if at := (next + i) % len(whole); whole[at] > s.Seconds {
					took, next = whole[at], at+1
					unknown--
					break
				}
			}
		}
		trace = append(trace, took)
	}
	return trace, unknown
}

const longestLine = 1 << 20 // bytes

// ReadTimes reads recorded times for Recorded, one JSON object a line with "slot", "seconds" and,
// where the gradient was given up after them, "given_up".
func ReadTimes(r io.Reader) (Times, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, longestLine)
	var samples []Sample
	line := 1
	for ; in.Scan(); line++ {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		var x struct {
			Slot    *int    `json:"slot"`
			Seconds float64 `json:"seconds"`
			GivenUp bool    `json:"given_up"`
		}
		if err := json.Unmarshal(in.Bytes(), &x); err != nil {
			return Times{}, fmt.Errorf("%w: times, line %d: %.40q is not as {\"slot\": 0, \"seconds\": 1.5}", kintsugi.ErrUsage, line, in.Text())
		}
		if x.Slot == nil {
			return Times{}, fmt.Errorf("%w: times, line %d: it needs a \"slot\" from 0 and positive \"seconds\"", kintsugi.ErrUsage, line)
		}
		samples = append(samples, Sample{Slot: *x.Slot, Seconds: x.Seconds, GivenUp: x.GivenUp})
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return Times{}, fmt.Errorf("%w: times, line %d: it is longer than %d bytes", kintsugi.ErrUsage, line, longestLine)
	} else if err != nil {
		return Times{}, fmt.Errorf("times: %w", err)
	}
	return Recorded(samples)
}
