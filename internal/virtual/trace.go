package virtual

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

	// GivenUp says that the worker was interrupted after that time, so the full time of the
	// gradient is not known. It is replaced by a longer time of another gradient of the same
	// worker, each of these in turn. If there is none, the time itself is used, which makes the
	// worker faster than it was.
	GivenUp bool
}

// Recorded returns times that repeat samples, for each slot in their order. A worker uses the times
// of the slot with its number, modulo the number of slots, over and over from a random start. If a
// slot below the largest has no samples, or a time is not positive, that is a usage error.
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

// complete returns the times of one worker. It replaces the times of gradients that were given up
// by longer ones; unknown is the number of those without a longer one.
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

// ReadTimes reads recorded times for Recorded: one JSON object per line with "slot" and "seconds",
// and "given_up" if the gradient was given up after that time.
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
