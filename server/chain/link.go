package chain

import "github.com/kintsugi-ml/kintsugi"

// Link is what a replica knows of the one after it in the chain of its view. The zero Link is that of a tail.
type Link struct {
	next next

	// What everyone behind has done, as far as the one after has said on the present connection.
	promised kintsugi.Fence
	step     kintsugi.Step // applied
	decided  kintsugi.Fence

	taken  *kintsugi.Taken // answers that wait for those behind
	stable *kintsugi.Stable

	tells   bool             // the one after is told whenever it has caught up, and not only when it was joining
	told    bool             // of tells: it has been told on the present connection
	ahead   bool             // a step is answered while those behind have the one before
	unheard *kintsugi.Stable // of ahead: the newest step that was answered before it was heard of; nil: none
}

// next is what the one after is to a replica.
type next uint8

const (
	nobody  next = iota // this is the tail
	counts              // its answers are needed
	joining             // it is catching up, and is not waited for
)

// New returns the link of a replica that has somebody after it in its view, or has not. Until that one has said
// otherwise its answers are needed.
func New(after bool) Link {
	if after {
		return Link{next: counts}
	}
	return Link{}
}

// Alone returns the link of a replica whose line has not begun: whoever is after it will be sent
// what the line begins with, and is not waited for before it has that.
func Alone(after bool) Link {
	if after {
		return Link{next: joining}
	}
	return Link{}
}

// Relax lets the one after answer for everybody behind it, so that a step waits for that one alone.
// It is told when it has caught up, since before that its word counts for nothing. next says that
// this replica is the one that answers for those behind it: it does so while they have the step
// before. step and decided are where it stands: what they have of that it does not know yet.
func (l *Link) Relax(next bool, step kintsugi.Step, decided kintsugi.Fence) {
	l.tells, l.ahead = true, next
	if l.ahead && l.next == counts {
		l.unheard = &kintsugi.Stable{Step: step, Decided: decided}
	}
}

// After reports whether there is somebody after this replica.
func (l *Link) After() bool { return l.next != nobody }

// Connected says that the one after has connected; caughtUp: it stands where this replica stands, or is about to. It
// returns the answers that waited for one that is not.
func (l *Link) Connected(caughtUp bool) []kintsugi.ReplicaMessage {
	if l.next == nobody {
		return nil
	}
	l.promised, l.step, l.decided, l.told = 0, 0, 0, false
	if caughtUp {
		l.next = counts
		return nil
	}
	l.next, l.unheard = joining, nil
	return l.ready(nil)
}

// Answer takes an answer of the replica itself and returns what may be said now. joined is as of
// Heard: the one after may have applied a step first, of which parts come to it while the step is
// made here.
func (l *Link) Answer(m kintsugi.ReplicaMessage) (said []kintsugi.ReplicaMessage, joined bool) {
	switch m := m.(type) {
	case kintsugi.Taken:
		l.taken = &m
	case kintsugi.Stable:
		l.stable = &m
		joined = l.step == m.Step && l.decided == m.Decided && l.caughtUp()
	default:
		return []kintsugi.ReplicaMessage{m}, false
	}
	return l.ready(nil), joined
}

// Heard takes an answer of the one after and returns what may be said now. step and decided are
// where this replica stands itself: the newest step that it has applied, and the fence of that
// decision. joined reports that the one after has caught up and counts from now on; it must be told
// before anything else.
func (l *Link) Heard(m kintsugi.ReplicaMessage, step kintsugi.Step, decided kintsugi.Fence) (said []kintsugi.ReplicaMessage, joined bool) {
	reached := false
	switch m := m.(type) {
	case kintsugi.Taken:
		l.promised = max(l.promised, m.Fence)
		reached = m.Released == step
		if u := l.unheard; u != nil && m.Released >= u.Step {
			l.unheard = nil
		}
	case kintsugi.Stable:
		l.step, l.decided = m.Step, m.Decided
		reached = m.Step == step && m.Decided == decided
		if u := l.unheard; u != nil && (m.Step > u.Step || m.Step == u.Step && m.Decided == u.Decided) {
			l.unheard = nil
		}
	}
	joined = reached && l.caughtUp()
	return l.ready(nil), joined
}

// caughtUp notes that the one after stands where this replica stands, and reports whether it is to be told.
func (l *Link) caughtUp() (tell bool) {
	tell = l.next == joining || l.tells && l.next == counts && !l.told
	if tell {
		l.next, l.told = counts, true
	}
	return tell
}

// ready appends the answers that wait for nobody any more.
func (l *Link) ready(said []kintsugi.ReplicaMessage) []kintsugi.ReplicaMessage {
	alone := l.next != counts
	if t := l.taken; t != nil && (alone || l.promised >= t.Fence) {
		l.taken = nil
		said = append(said, *t)
	}
	if s := l.stable; s != nil {
		heard := alone || l.step == s.Step && l.decided == s.Decided
		if !heard && l.ahead && l.unheard == nil {
			l.unheard, heard = s, true
		}
		if heard {
			l.stable = nil
			said = append(said, *s)
		}
	}
	return said
}
