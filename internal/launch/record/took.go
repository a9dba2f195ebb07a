package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Took is the time that a worker spent on one gradient that ended since the previous step. There is
// one for each gradient of each step, so in JSON it is an array: slot, microseconds of computing,
// microseconds of sending, and the number of the fate, which is left out if it is 0.
type Took struct {
	Slot     uint32
	Compute  time.Duration
	Transfer time.Duration
	Fate     kintsugi.Fate
}

// Seconds returns the total time.
func (t Took) Seconds() float64 { return (t.Compute + t.Transfer).Seconds() }

// MarshalJSON implements json.Marshaler.
func (t Took) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 32), '[')
	b = strconv.AppendUint(b, uint64(t.Slot), 10)
	for _, d := range []time.Duration{t.Compute, t.Transfer} {
		b = strconv.AppendInt(append(b, ','), d.Microseconds(), 10)
	}
	if t.Fate != kintsugi.InTime {
		b = strconv.AppendUint(append(b, ','), uint64(t.Fate), 10)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler. It ignores elements that a later version has added.
func (t *Took) UnmarshalJSON(text []byte) error {
	list, ok := numbers(text)
	if !ok {
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
	}
	const most = int64(1<<63-1) / int64(time.Microsecond)
	if len(list) < 3 || list[0] < 0 || list[0] > 1<<32-1 || list[1] < 0 || list[1] > most/2 || list[2] < 0 || list[2] > most/2 {
		return fmt.Errorf("times of a gradient %s: want a slot, microseconds of computing and of sending", text)
	}
	*t = Took{Slot: uint32(list[0]), Compute: time.Duration(list[1]) * time.Microsecond, Transfer: time.Duration(list[2]) * time.Microsecond}
	if len(list) > 3 {
		if list[3] < 0 || list[3] > 255 {
			return fmt.Errorf("times of a gradient %s: there is no fate %d", text, list[3])
		}
		t.Fate = kintsugi.Fate(list[3])
	}
	return nil
}

// numbers parses an array of integers in the form that MarshalJSON writes. It is a fast path, as
// there is one array for each gradient of a run. ok is false for any other form.
func numbers(text []byte) (list []int64, ok bool) {
	list = make([]int64, 0, 4)
	text, opens := bytes.CutPrefix(text, []byte("["))
	text, closes := bytes.CutSuffix(text, []byte("]"))
	for more := opens && closes; more; {
		var word []byte
		word, text, more = bytes.Cut(text, []byte(","))
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return nil, false
		}
		list = append(list, n)
	}
	return list, len(list) > 0
}

func tookOf(list []kintsugi.GradientTime) []Took {
	if len(list) == 0 {
		return nil
	}
	took := make([]Took, len(list))
	for i, t := range list {
		took[i] = Took{Slot: uint32(t.Slot), Compute: t.Compute, Transfer: t.Transfer, Fate: t.Fate}
	}
	return took
}
