// Package timeout decides how long to wait for an answer before whoever owes it counts as hung. A
// fixed time would have to be guessed, and would be wrong for a small model or for a large one, so
// the time is learned from earlier answers.
package timeout

import (
	"fmt"
	"time"
)

// Learned, as Timeout.Fixed, stands for times that follow from earlier answers.
const Learned time.Duration = -1

// The learned times. A first answer may have to wait for a compiler, and a later one that is new to it, such as
// the last batch of an epoch if that is smaller, as long again. Answers vary in length, and a machine
// may have more to do at times: twenty times as long as usual is still no hang. Below two minutes,
// files on a network that pauses would count as one.
const (
	first  = 30 * time.Minute
	least  = 2 * time.Minute
	times  = 20 // of the longest of the newest answers
	ever   = 2  // times the longest of all answers
	newest = 32
)

// Timeout is how long to wait for the answers of one kind. It has no clock: its owner tells it how
// long it waits. The zero value waits for ever.
type Timeout struct {
	Fixed time.Duration // how long to wait; 0: for ever; Learned

	took    [newest]time.Duration // a ring
	n       int                   // number of answers
	longest time.Duration
	waited  time.Duration // since Begin
}

// Limit returns how long to wait for the next answer; 0: for ever.
func (p *Timeout) Limit() time.Duration {
	switch {
	case p.Fixed != Learned:
		return p.Fixed
	case p.n == 0:
		return first
	}
	return max(least, times*p.recent(), ever*p.longest)
}

// recent returns the longest of the newest answers.
func (p *Timeout) recent() (long time.Duration) {
	for _, d := range p.took {
		long = max(long, d)
	}
	return long
}

// Every returns how often to call Waited while waiting, in parts of the limit: it is over by no more
// than that when it is noticed. 0: there is no limit, and nothing to notice.
func (p *Timeout) Every() time.Duration {
	const parts = 64
	if limit := p.Limit(); limit > 0 {
		return max(time.Millisecond, limit/parts)
	}
	return 0
}

// Begin begins to wait for another answer.
func (p *Timeout) Begin() { p.waited = 0 }

// Waited notes that the owner has waited for a time, and reports whether the limit is over. Of a time
// much longer than Every no more counts than twice that: the owner itself was stopped, and with it, for all it
// knows, whoever owes the answer.
func (p *Timeout) Waited(d time.Duration) (over bool) {
	if every := p.Every(); every > 0 {
		d = min(d, 2*every)
	}
	p.waited += d
	limit := p.Limit()
	return limit > 0 && p.waited >= limit
}

// Answered notes that the answer has come.
func (p *Timeout) Answered() {
	p.took[p.n%newest] = p.waited
	p.n++
	p.longest = max(p.longest, p.waited)
}

// String says how long was waited, and why no longer.
func (p *Timeout) String() string {
	limit := p.Limit()
	switch {
	case p.Fixed != Learned:
		return fmt.Sprintf("no answer within %v", limit)
	case p.n == 0:
		return fmt.Sprintf("no first answer within %v", limit)
	}
	return fmt.Sprintf("no answer within %v, and none of the %d before took more than %v", limit.Round(time.Second), p.n, p.longest.Round(time.Millisecond))
}
