package conductor

import "github.com/kintsugi-ml/kintsugi"

// times are what gradients took that have ended since the last step: for the record of the run, of which nothing is
// decided.
type times struct {
	list []kintsugi.GradientTime
	push []kintsugi.PushID // by gradient
}

// spareTimes is how many times are kept beyond four for each member: a worker that is told again and again that it is too
// late may not fill the memory of a conductor whose step waits.
const spareTimes = 64

// note notes what a gradient took that a worker has ended.
func (c *Conductor) note(t kintsugi.Ticket, fate kintsugi.Fate) {
	if len(c.times.list) >= 4*len(c.members)+spareTimes {
		return
	}
	c.times.list = append(c.times.list, kintsugi.GradientTime{Slot: t.Push.Slot, Compute: t.Compute, Transfer: t.Transfer, Fate: fate})
	c.times.push = append(c.times.push, t.Push)
}

// late notes that a gradient that was in time is not any more.
func (s *times) late(p kintsugi.PushID) {
	for i, have := range s.push {
		if have == p {
			s.list[i].Fate = kintsugi.Late
		}
	}
}

// take returns what was noted, and begins anew. The caller owns it.
func (s *times) take() []kintsugi.GradientTime {
	list := s.list
	s.list, s.push = nil, s.push[:0]
	return list
}
