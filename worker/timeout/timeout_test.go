package timeout

import (
	"math/rand/v2"
	"testing"
	"time"
)

const s = time.Second

// answered returns a Timeout that has learned from answers that took so long.
func answered(took ...time.Duration) *Timeout {
	p := &Timeout{Fixed: Learned}
	for _, d := range took {
		p.answer(d)
	}
	return p
}

func (p *Timeout) answer(took time.Duration) {
	p.Begin()
	for took > 0 {
		d := min(took, max(p.Every(), time.Nanosecond))
		p.Waited(d)
		took -= d
	}
	p.Answered()
}

func TestTheLimitFollowsFromEarlierAnswers(t *testing.T) {
	many := func(d time.Duration, n int) (all []time.Duration) {
		for range n {
			all = append(all, d)
		}
		return all
	}
	for name, c := range map[string]struct {
		p    *Timeout
		want time.Duration
	}{
		"for ever":                              {&Timeout{}, 0},
		"as it is told":                         {&Timeout{Fixed: 5 * s}, 5 * s},
		"the first may compile":                 {answered(), 30 * time.Minute},
		"short answers":                         {answered(many(s/100, 3)...), 2 * time.Minute},
		"long answers":                          {answered(many(30*s, 3)...), 600 * s},
		"one in between counts as well":         {answered(append(many(s, 9), 20*s, s)...), 400 * s},
		"until there are many newer ones":       {answered(append([]time.Duration{300 * s}, many(s, newest)...)...), 600 * s},
		"what was compiled once may be again":   {answered(append([]time.Duration{90 * s}, many(s/10, 100)...)...), 180 * s},
		"the compiler is soon no measure of it": {answered(append([]time.Duration{90 * s}, many(s/10, newest-1)...)...), 1800 * s},
	} {
		if got := c.p.Limit(); got != c.want {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

// Whatever the answers were like, one that takes no longer than the longest of them does not hang,
// and one that never comes does, no later than by an Every.
func TestWhatHangsIsNoticedAndNothingElse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := &Timeout{Fixed: Learned}
		var longest time.Duration
		for range 1 + rng.IntN(60) {
			took := time.Duration(rng.ExpFloat64() * float64(time.Duration(1+rng.IntN(1000))*s/10))
			took = min(took, first-s)
			if longest > 0 {
				took = min(took, 2*longest)
			}
			p.Begin()
			for left := took; left > 0; {
				d := min(left, p.Every())
				if left -= d; p.Waited(d) {
					t.Fatalf("after answers of up to %v, one of %v counts as hung (limit %v)", longest, took, p.Limit())
				}
			}
			p.Answered()
			longest = max(longest, took)
		}
		p.Begin()
		var waited time.Duration
		for over := false; !over; over = p.Waited(p.Every()) {
			waited += p.Every()
		}
		if waited < p.Limit() || waited > p.Limit()+2*p.Every() {
			t.Fatalf("noticed after %v; the limit is %v", waited, p.Limit())
		}
	}
}

// A laptop that was closed, or a process that a debugger has stopped, has not waited.
func TestATimeInWhichTheOwnerWasStoppedDoesNotCount(t *testing.T) {
	p := answered(s)
	p.Begin()
	for range 31 {
		if p.Waited(time.Hour) {
			t.Fatal("it counts")
		}
	}
	if !p.Waited(time.Hour) {
		t.Error("a pause counts twice Every, so 32 of them are the limit")
	}
}

func TestOneTimeoutIsWithoutEnd(t *testing.T) {
	var p Timeout
	p.Begin()
	if p.Every() != 0 || p.Waited(0) || p.Waited(1000*time.Hour) {
		t.Error("it ends")
	}
}

func TestTheReasonNamesTheMeasure(t *testing.T) {
	for want, p := range map[string]*Timeout{
		"no answer within 5s":          {Fixed: 5 * s},
		"no first answer within 30m0s": answered(),
		"no answer within 2m0s, and none of the 2 before took more than 1.5s": answered(s, 1500*time.Millisecond),
	} {
		if got := p.String(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
