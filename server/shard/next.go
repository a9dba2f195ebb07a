package shard

import "github.com/kintsugi-ml/kintsugi"

// In a chain of three replicas or more, the replica after the head ("next") may answer for those
// behind it: a step is stable when the head and the next have it, and the others follow. So a step
// waits for one transfer, instead of several one after the other.
//
// Released steps are at the head and at the next, whatever the others have. These two cannot both
// be replaced in one view of a line: at least one of them is in the next view, and not in an
// earlier view any more. So steps cannot become stable in both views. Those behind may lack steps.
// A replica that was behind the next in any view must be told by the replica before it that it has
// caught up before it may be a head on the line. Its server reports that to the coordinator, which
// does not make it a head before. If it becomes one all the same, it is not whole, and its server
// ends, as the server of a replica that is joining does.
//
// What those behind may lack is bounded. The next answers for a step when those behind it have
// applied the step before (package chain), since each replica but the next answers as in any other
// chain: when the replica after it has answered. So if head and next are gone together, each of the
// others, whichever of them the chain then has, has all but the newest two of the released steps. A
// line then begins as with copies: the replica falls back to the newest version that it knows to be
// released.

// NextAnswers lets the replica after the head of r's chain answer for all behind it. at is the
// place of r in the chain; 0: the head. It is called after Place, in each view.
func (r *Replica) NextAnswers(at int) {
	r.next, r.at = true, at
	r.link.Relax(at == 1, r.applied, r.decided())
}

// Behind reports whether released steps may be missing here although r has caught up once.
func (r *Replica) Behind() bool { return r.next && (r.behind || r.at > 1) }

// CaughtUp reports whether r has everything that others rely on it for at its place. A replica
// behind the next need not have everything.
func (r *Replica) CaughtUp() bool {
	return r.Whole() && r.Settled() && !(r.next && r.at == 1 && r.behind)
}

// oneBehind reports whether the replica after lacks only the step that was applied here last, and
// that is released.
func (r *Replica) oneBehind(f kintsugi.Follow) bool {
	return r.next && f.Whole && f.Released <= f.Applied && f.Applied+1 == r.released && r.released == r.applied &&
		f.Decided != 0 && f.Decided == r.decidedAt(f.Applied)
}

// lastStep returns what a replica that is oneBehind must be sent.
func (r *Replica) lastStep(f kintsugi.Follow) (send []kintsugi.ChainMessage) {
	if f.Released < f.Applied {
		send = append(send, kintsugi.Released{Line: r.line, Fence: r.promised, Step: f.Applied})
	}
	c := r.records[len(r.records)-1]
	c.Fence = r.promised
	return append(send, kintsugi.Update{Commit: c}, kintsugi.Released{Line: r.line, Fence: r.promised, Step: r.released})
}
