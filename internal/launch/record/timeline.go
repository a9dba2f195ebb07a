package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Round is what a worker did from its previous ticket to the ticket for the step. In JSON it is an
// array: the slot, then in microseconds the time from the previous release to the ticket, and the
// times of waiting, pulling, computing, encoding, sending, waiting for the heads' answers, and of
// encoding and sending during the computation.
type Round struct {
	Slot                                               uint32
	Told                                               time.Duration
	Wait, Pull, Compute, Encode, Send, Answers, Hidden time.Duration
}

// Stable is what a shard did in a step. In JSON it is an array: the shard, then in microseconds the
// time from the previous release to its answer, and the times of the kernel, of publishing the
// previous version to readers, and of the kernel before the commit. Records of earlier releases
// lack the last one.
type Stable struct {
	Shard                        uint32
	Told, Kernel, Publish, Ahead time.Duration
}

// MarshalJSON implements json.Marshaler.
func (r Round) MarshalJSON() ([]byte, error) {
	return micros(r.Slot, r.Told, r.Wait, r.Pull, r.Compute, r.Encode, r.Send, r.Answers, r.Hidden), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Round) UnmarshalJSON(text []byte) error {
	return ofMicros(text, "round of a worker", &r.Slot, 0, &r.Told, &r.Wait, &r.Pull, &r.Compute, &r.Encode, &r.Send, &r.Answers, &r.Hidden)
}

// MarshalJSON implements json.Marshaler.
func (s Stable) MarshalJSON() ([]byte, error) {
	return micros(s.Shard, s.Told, s.Kernel, s.Publish, s.Ahead), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Stable) UnmarshalJSON(text []byte) error {
	return ofMicros(text, "times of a shard", &s.Shard, 1, &s.Told, &s.Kernel, &s.Publish, &s.Ahead)
}

func micros(number uint32, times ...time.Duration) []byte {
	b := strconv.AppendUint(append(make([]byte, 0, 64), '['), uint64(number), 10)
	for _, d := range times {
		b = strconv.AppendInt(append(b, ','), d.Microseconds(), 10)
	}
	return append(b, ']')
}

// ofMicros parses what micros has written. It ignores elements that a later version has added. The
// last newer times may be missing.
func ofMicros(text []byte, what string, number *uint32, newer int, times ...*time.Duration) error {
	var list []int64
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if n := len(times); len(list) <= n && len(list) >= 1+n-newer {
		times = times[:len(list)-1]
	}
	if len(list) < 1+len(times) || list[0] < 0 || list[0] > 1<<32-1 {
		return fmt.Errorf("%s %s: want a number and %d times in microseconds", what, text, len(times))
	}
	*number = uint32(list[0])
	const most = int64(1<<63-1) / int64(time.Microsecond)
	for i, to := range times {
		if list[i+1] < -most || list[i+1] > most {
			return fmt.Errorf("%s %s: %d microseconds are too many", what, text, list[i+1])
		}
		*to = time.Duration(list[i+1]) * time.Microsecond
	}
	return nil
}

// TimelineOf returns the event of a step's timeline, or nil if there is none. The Recorder sets its
// time.
func TimelineOf(e kintsugi.StepEvent) *Timeline {
	if e.Timeline == nil {
		return nil
	}
	t := &Timeline{Line: uint64(e.Line), Step: uint64(e.Step), WaitSeconds: round(e.Wait.Seconds()), ApplySeconds: round(e.Apply.Seconds())}
	for _, w := range e.Timeline.Workers {
		s := w.Spans
		t.Workers = append(t.Workers, Round{Slot: uint32(w.Slot), Told: whole(w.Told), Wait: whole(s.Wait), Pull: whole(s.Pull), Compute: whole(w.Compute), Encode: whole(s.Encode), Send: whole(s.Send),
			Answers: whole(max(0, w.Transfer-s.Encode-s.Send)), Hidden: whole(s.Hidden)})
	}
	for _, s := range e.Timeline.Shards {
		t.Shards = append(t.Shards, Stable{Shard: uint32(s.Shard), Told: whole(s.Told), Kernel: whole(s.Apply), Publish: whole(s.Publish), Ahead: whole(s.Ahead)})
	}
	return t
}

// whole truncates a time to microseconds, the precision of the file, so that a page drawn from
// memory equals the page drawn from the file.
func whole(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }
