package train

import (
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
)

// A checkpoint that does not come is reported after a minute, and then more and more rarely. One
// that takes as long as earlier ones is not reported, and neither is one that is not due.
func TestACheckpointThatDoesNotComeIsToldOf(t *testing.T) {
	begin := time.Unix(0, 0)
	for name, c := range map[string]struct {
		every   job.Pace
		stands  int // the second from which on no step is released; 0: never
		slowest time.Duration
		ends    map[int]kintsugi.Step // the step of a save, by the second at which it ends
		want    []int                 // seconds at which it is reported
	}{
		"it hangs":                    {job.Pace{Steps: 50}, 0, 0, nil, []int{70, 130, 250, 490, 970}},
		"it hangs later":              {job.Pace{Steps: 50}, 0, 0, map[int]kintsugi.Step{7: 50, 12: 100}, []int{80, 140, 260, 500, 980}},
		"it fails, and hangs":         {job.Pace{Steps: 50}, 0, 0, map[int]kintsugi.Step{90: 50}, []int{70, 150, 210, 330, 570}},
		"saves take a while":          {job.Pace{Steps: 50}, 0, 100 * time.Second, map[int]kintsugi.Step{300: 50, 580: 3000}, []int{880}},
		"nothing is saved on the way": {job.Pace{}, 0, 0, nil, nil},
		"nothing is due":              {job.Pace{Steps: 20_000}, 0, 0, nil, nil},
		"it hangs, by time":           {job.Pace{Time: 100 * time.Second}, 0, 0, nil, []int{260, 320, 440, 680}},
		"it ends, by time":            {job.Pace{Time: 100 * time.Second}, 0, 0, map[int]kintsugi.Step{110: 1000, 220: 2000, 330: 3000, 440: 4000, 550: 5000, 660: 6000, 770: 7000, 880: 8000, 990: 9000}, nil},
		"it hangs later, by time":     {job.Pace{Time: 100 * time.Second}, 0, 0, map[int]kintsugi.Step{110: 1000, 220: 2000}, []int{480, 540, 660, 900}},
		"it hangs at first, auto":     {job.Pace{Auto: true}, 0, 0, nil, nil},
		"it hangs later, auto":        {job.Pace{Auto: true}, 0, 0, map[int]kintsugi.Step{1: 10, 31: 300, 61: 600, 91: 900, 131: 1300}, []int{347, 407, 527, 767}},
		"it ends, auto":               {job.Pace{Auto: true}, 0, 0, map[int]kintsugi.Step{1: 10, 101: 1000, 201: 2000, 301: 3000, 401: 4000, 501: 5000, 601: 6000, 701: 7000, 801: 8000, 901: 9000}, nil},
		"no step is released":         {job.Pace{Time: 100 * time.Second}, 150, 0, map[int]kintsugi.Step{100: 1000}, nil},
	} {
		o, got := overdue{every: c.every}, []int(nil)
		for second := range 1000 {
			if step, ok := c.ends[second]; ok {
				o.end(step)
			}
			released := second
			if c.stands > 0 {
				released = min(second, c.stands)
			}
			if late := o.at(begin.Add(time.Duration(second)*time.Second), kintsugi.Step(10*released), c.slowest); late > 0 {
				got = append(got, second)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: said at %d s, want %d", name, got, c.want)
		}
	}
}

// The next conductor begins its own saves, and has the full time for them.
func TestANewViewHasTimeForItsCheckpoint(t *testing.T) {
	o, begin := overdue{every: job.Pace{Steps: 50}}, time.Unix(0, 0)
	at := func(second int) bool { return o.at(begin.Add(time.Duration(second)*time.Second), 100, 0) > 0 }
	if at(0) || at(59) {
		t.Error("it is said before a minute has passed")
	}
	o.view()
	if at(60) || at(119) {
		t.Error("it is said of the view before")
	}
	if !at(120) {
		t.Error("it is not said")
	}
}

// If every save fails, ten in a second, one report is made in ten seconds, with the number of the
// others.
func TestSavesThatFailAreToldOfNowAndThen(t *testing.T) {
	var f failing
	var said []int
	begin := time.Unix(1000, 0)
	for i := range 300 {
		if untold, tell := f.at(begin.Add(time.Duration(i) * time.Second / 10)); tell {
			said = append(said, i, untold)
		}
	}
	if want := []int{0, 0, 100, 99, 200, 99}; !slices.Equal(said, want) {
		t.Errorf("told of failures, and those between: %d; want %d", said, want)
	}
	if untold, tell := f.at(begin.Add(time.Hour)); !tell || untold != 99 {
		t.Errorf("an hour later: %t, %d; want true and 99", tell, untold)
	}
	if _, tell := f.at(begin); !tell {
		t.Error("a clock that was set back silences failures until it is as late again")
	}
}
