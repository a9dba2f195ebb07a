package chain

import "github.com/kintsugi-ml/kintsugi"

// Link is what a replica knows of the replica after it in the chain of its view. The zero Link is
// that of a tail. A Link has no lock.
type Link struct {
	next next

	// What all replicas behind have done, as far as the one after has said on the present
	// connection.
	promised kintsugi.Fence
	step     kintsugi.Step // applied
	decided  kintsugi.Fence

	taken  *kintsugi.Taken // answers of this replica that wait for those behind
	stable *kintsugi.Stable

	// If the one after is joining:
	waited bool          // it is waited for all the same
	behind kintsugi.Step // the fewest steps that it was behind on the present connection; 0: it has said nothing yet
	since  kintsugi.Step // its answers since then

	tells   bool             // the one after is told whenever it has caught up, not only if it was joining
	told    bool             // if tells: it has been told on the present connection
	ahead   bool             // a step is answered when those behind have the step before
	unheard *kintsugi.Stable // if ahead: the newest step that was answered before those behind had it; nil: none
}

// next says what the replica after is to this one.
type next uint8

const (
	nobody  next = iota // this is the tail
	counts              // its answers are needed
	joining             // it is catching up, and is not waited for unless it comes no closer
)

// New returns the link of a replica. after says whether its view has a replica after it. The
// answers of that one are needed until it says that it is catching up.
func New(after bool) Link {
	if after {
		return Link{next: counts}
	}
	return Link{}
}

// Alone returns the link of a replica whose line has not begun. A replica after it will be sent
// what the line begins with, and its answers are not needed before it has that.
func Alone(after bool) Link {
	if after {
		return Link{next: joining}
	}
	return Link{}
}

// Relax lets the replica after the head answer for all replicas behind it, so that a step waits for
// that one alone. A replica is told when it has caught up, because nobody relies on it before that.
// next says that this replica is the one that answers for those behind it: it answers a step when
// they have the step before. step and decided say where this replica stands; it does not know yet
// whether those behind stand there.
func (l *Link) Relax(next bool, step kintsugi.Step, decided kintsugi.Fence) {
	l.tells, l.ahead = true, next
	if l.ahead && l.next == counts {
		l.unheard = &kintsugi.Stable{Step: step, Decided: decided}
	}
}

// After reports whether there is a replica after this one.
func (l *Link) After() bool { return l.next != nobody }

// Waits reports whether this replica has answered a step, and the answer waits for the replica after.
func (l *Link) Waits() bool { return l.stable != nil }

// Released drops the answer to a step that is released: whoever released it has not waited for the
// answer.
func (l *Link) Released(step kintsugi.Step) {
	if l.stable != nil && l.stable.Step <= step {
		l.stable = nil
	}
}

// Wait makes the answers of the replica after needed from now on, even while it is catching up and
// whenever it connects again: steps go on faster than it can follow.
func (l *Link) Wait() { l.waited = l.next != nobody }

// Connected notes that the replica after has connected. caughtUp says that it stands where this
// replica stands, or is about to. If not, its answers are not needed any more unless it comes no
// closer, and Connected returns the answers that waited for them.
func (l *Link) Connected(caughtUp bool) []kintsugi.ReplicaMessage {
	if l.next == nobody {
		return nil
	}
	l.promised, l.step, l.decided, l.told = 0, 0, 0, false
	l.behind, l.since = 0, 0
	if caughtUp {
		l.next, l.waited = counts, false
		return nil
	}
	l.next, l.unheard = joining, nil
	return l.ready(nil)
}

// Answer takes an answer of this replica itself and returns the answers that may be given now.
// joined is as in Heard. The replica after may have applied a step first, since it gets the parts
// of the sum while this replica still makes the step.
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

// Heard takes an answer of the replica after and returns the answers that may be given now. step
// and decided say where this replica stands: the newest step that it has applied, and the fence of
// that decision. joined reports that the replica after has caught up, and that its answers are
// needed from now on. It must be told so before anything else.
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

// Follows notes that the replica after, which may be catching up, has applied a step, and that this
// replica has applied the step here. It is waited for once it has not come closer in as many answers
// as it is steps behind, or is twice as far behind as it was. It may never stand where this replica
// stands otherwise: answers that are longer under way than a step takes always come too late, and
// a replica that is slower falls back further and further. As long as it comes closer it is not
// waited for, so that steps do not stand still until it has applied what is in its queue.
func (l *Link) Follows(step, here kintsugi.Step) {
	if l.next != joining || step >= here {
		return
	}
	behind := here - step
	l.since++
	if l.behind == 0 || behind < l.behind {
		l.behind, l.since = behind, 0
	}
	l.waited = l.waited || l.since >= l.behind || behind >= 2*l.behind
}

// caughtUp notes that the replica after stands where this replica stands, and reports whether it
// must be told.
func (l *Link) caughtUp() (tell bool) {
	tell = l.next == joining || l.tells && l.next == counts && !l.told
	if tell {
		l.next, l.told, l.waited = counts, true, false
	}
	return tell
}

// ready appends the answers that need not wait any more.
func (l *Link) ready(said []kintsugi.ReplicaMessage) []kintsugi.ReplicaMessage {
	alone := l.next != counts && !l.waited
	if t := l.taken; t != nil && (alone || l.promised >= t.Fence) {
		l.taken = nil
		said = append(said, *t)
	}
	if s := l.stable; s != nil {
		heard := alone || l.step == s.Step && l.decided == s.Decided
		if !heard && l.ahead && !l.waited && l.unheard == nil {
			l.unheard, heard = s, true
		}
		if heard {
			l.stable = nil
			said = append(said, *s)
		}
	}
	return said
}
