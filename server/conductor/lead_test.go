package conductor_test

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// clocks is the lead as it is documented, kept beside a conductor: how many tickets each member has
// sent, and who may hear what lets it go on.
type clocks struct {
	members map[kintsugi.Slot]*clock
	decided bool // the conductor has decided a step
	done    bool
}

type clock struct {
	incarnation kintsugi.Incarnation
	admitted    bool
	tickets     int // the tickets of the slowest member when it was admitted, if a step was decided before, and its own
	seen        map[kintsugi.PushID]bool
	gone        time.Time
}

func (k *clocks) hello(slot kintsugi.Slot, n kintsugi.Incarnation) {
	if m := k.members[slot]; m == nil || m.incarnation != n {
		k.members[slot] = &clock{incarnation: n, seen: make(map[kintsugi.PushID]bool)}
	}
	k.members[slot].gone = time.Time{}
}

func (k *clocks) hangUp(slot kintsugi.Slot, n kintsugi.Incarnation, now time.Time) {
	if m := k.members[slot]; m != nil && m.incarnation == n && m.gone.IsZero() {
		m.gone = now
	}
}

func (k *clocks) pass(now time.Time, grace time.Duration) {
	for slot, m := range k.members {
		if !m.gone.IsZero() && now.Sub(m.gone) >= grace {
			delete(k.members, slot)
		}
	}
}

func (k *clocks) ticket(t kintsugi.Ticket) {
	m := k.members[t.Push.Slot]
	if m == nil || !m.admitted || m.incarnation != t.Push.Incarnation || len(t.Views) == 0 || m.seen[t.Push] {
		return
	}
	m.seen[t.Push] = true
	m.tickets++
}

func (k *clocks) slowest(but *clock) (least int) {
	first := true
	for _, m := range k.members {
		if m.admitted && m != but && (first || m.tickets < least) {
			least, first = m.tickets, false
		}
	}
	return least
}

// sent checks a message to a worker: one that is too far ahead hears nothing that lets it go on.
func (k *clocks) sent(w *world, s *seat, x kintsugi.ConductorMessage, slot kintsugi.Slot, n kintsugi.Incarnation) {
	w.t.Helper()
	m := k.members[slot]
	if m == nil || m.incarnation != n {
		return
	}
	switch x := x.(type) {
	case kintsugi.Done:
		k.done = true
		return
	case kintsugi.Admitted:
		if !m.admitted {
			m.admitted, m.tickets = true, 0
			if k.decided {
				m.tickets = k.slowest(m)
			}
		}
	case kintsugi.Released:
		own := false
		for _, p := range x.Counted {
			own = own || p.Slot == slot
		}
		if !own {
			return
		}
	case kintsugi.Refused:
	}
	lead := w.cfg.Consistency.Leads()
	if ahead := m.tickets - k.slowest(nil); lead != kintsugi.Infinite && !k.done && !s.Finished() && ahead > int(lead) {
		w.t.Fatalf("conductor %d lets worker/%d go on (%s), which is %d ahead with a lead of %d", s.Fence(), slot, describe(x), ahead, lead)
	}
}
