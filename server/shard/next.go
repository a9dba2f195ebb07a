package shard

import "github.com/kintsugi-ml/kintsugi"

// The chain of a shard may be answered for by the one after its head, where it has three replicas
// or more: a step is stable when the head and the next have it, and the others follow. So a step
// waits for one transfer and not for all of them, one after the other.
//
// Released steps are at the head and at the next, whoever else has them, and these two cannot both
// be replaced in one view of a line: one of them is in the next view and in no earlier one any
// more, so that nobody can make a step stable in both. Those behind may lack steps. A replica that
// was behind the next in any view must be told by the one before it that it has caught up before it
// may be a head on the line. Its server says so to the coordinator, which makes it none before; if
// that happens all the same it is not whole, and its server ends, as one that is joining does.
//
// How much they may lack is bounded: the next answers for a step when those behind it have applied
// the step before (package chain), for each of them but the next answers as in any other chain,
// when the one after it has. So where head and next are gone together each of the others, whichever
// of them the chain then has, has released all but the newest two of the steps that were released.
// A line begins then, as with copies: it falls back to the newest version of which it knows that it
// was released.

// NextAnswers lets the one after the head of r's chain answer for all behind it. at is the place of
// r in the chain; 0: the head. It is called after Place, in each view.
func (r *Replica) NextAnswers(at int) {
	r.next, r.at = true, at
	r.link.Relax(at == 1, r.applied, r.decided())
}

// Behind reports whether released steps may be missing here although r has caught up once.
func (r *Replica) Behind() bool { return r.next && (r.behind || r.at > 1) }

// CaughtUp reports whether r has all that it must have for others to rely on it at its place: who
// is behind the next must not have everything.
func (r *Replica) CaughtUp() bool {
	return r.Whole() && r.Settled() && !(r.next && r.at == 1 && r.behind)
}

// oneBehind reports whether the one after lacks nothing but the step that was applied here last, and released.
func (r *Replica) oneBehind(f kintsugi.Follow) bool {
	return r.next && f.Whole && f.Released <= f.Applied && f.Applied+1 == r.released && r.released == r.applied &&
		f.Decided != 0 && f.Decided == r.decidedAt(f.Applied)
}

// lastStep returns what the one after is to be sent that is oneBehind.
func (r *Replica) lastStep(f kintsugi.Follow) (send []kintsugi.ChainMessage) {
	if f.Released < f.Applied {
		send = append(send, kintsugi.Released{Line: r.line, Fence: r.promised, Step: f.Applied})
	}
	c := r.records[len(r.records)-1]
	c.Fence = r.promised
	return append(send, kintsugi.Update{Commit: c}, kintsugi.Released{Line: r.line, Fence: r.promised, Step: r.released})
}
