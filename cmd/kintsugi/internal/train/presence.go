package train

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// presence tracks which processes are in the places of a run, for observers that have not started
// the processes and cannot see them die. It learns that from leases in etcd, and from views, which
// are often earlier. It is pure: it gets lists, views and times, and returns the processes that
// came and went, each once. Lists come in order, and so do views, but either may be behind the
// other.
type presence struct {
	there  map[launch.Part]present
	view   kintsugi.View
	leases map[uint32]kintsugi.Incarnation // of servers, in the newest list; nil: no list yet
}

// present is a process in its place.
type present struct {
	incarnation kintsugi.Incarnation
	since       time.Time
	leased      bool // a list contained it, so a list without it is newer and not one from before it came
	recorded    bool // it was in this state at the end of the record that is continued
	leaving     bool // it has said that it is about to go
	gone        bool // it is known to be gone, and its place is still empty
}

// departure is a process that is no longer in its place.
type departure struct {
	part launch.Part
	present
	cause string
}

// presenceIn returns the presence at the end of the record of a run. at converts a time of the
// record. Processes that were recorded as gone are not recorded again; those that were present then
// and are not any more have gone in the meantime.
func presenceIn(run *record.Run, at func(seconds float64) time.Time) presence {
	var p presence
	for _, e := range run.Presences {
		if part, ok := partOf(e.Part); ok {
			p.set(part, present{incarnation: kintsugi.Incarnation(e.Incarnation), since: at(e.Seconds), leased: true, recorded: true})
		}
	}
	for _, e := range run.Lives {
		part, ok := partOf(e.Part)
		if !ok {
			continue
		}
		was, inc := p.there[part], kintsugi.Incarnation(e.Incarnation)
		if was.incarnation < inc || was.incarnation == inc && !was.since.After(at(e.Seconds)) { // otherwise the place was filled again
			p.set(part, present{incarnation: inc, since: at(e.BeganSeconds), leased: true, recorded: true, gone: true})
		}
	}
	return p
}

// partOf returns the part that a record names, or false if the part has no lease.
func partOf(name string) (launch.Part, bool) {
	for _, role := range []launch.Role{launch.Server, launch.Worker} {
		part := launch.Part{Role: role}
		if n, err := fmt.Sscanf(name, role.String()+"/%d", &part.Index); n == 1 && err == nil && part.String() == name {
			return part, true
		}
	}
	return launch.Part{}, false
}

// members processes the newest list of the members of a role that hold a lease.
func (p *presence) members(now time.Time, role launch.Role, list []etcd.Member) (gone []departure, came []launch.Part) {
	leases := make(map[uint32]kintsugi.Incarnation)
	for _, m := range list {
		part := launch.Part{Role: role, Index: int(m.Index)}
		leases[m.Index] = m.Incarnation
		leaving := saysLeaving(role, m)
		before, known := p.there[part]
		if known && before.incarnation > m.Incarnation { // a view knows a later one already
			continue
		}
		if known && before.incarnation == m.Incarnation {
			before.leased, before.leaving = true, leaving
			// A worker whose lease had lapsed is back, and so is a server that the view waits for.
			// A server that the view has left out still has its lease for some seconds, or until a
			// view takes it in again.
			if before.gone && (role == launch.Worker || p.viewHas(m.Index, m.Incarnation)) {
				before.since, before.gone = now, false
				came = append(came, part)
			}
			p.set(part, before)
			continue
		}
		if known && !before.gone {
			gone = append(gone, departure{part, before, "another process has taken its place"})
		}
		came = append(came, part)
		p.set(part, present{incarnation: m.Incarnation, since: now, leased: true, leaving: leaving})
	}
	for part, before := range p.there {
		if _, leased := leases[uint32(part.Index)]; part.Role == role && !leased && before.leased && !before.gone {
			gone = append(gone, departure{part, before, "its lease in etcd is gone: it died, left, or cannot reach etcd"})
			before.gone = true
			p.set(part, before)
		}
	}
	if role == launch.Server {
		p.leases = leases
	}
	slices.SortFunc(gone, func(a, b departure) int { return a.part.Index - b.part.Index })
	return gone, came
}

// saysLeaving reports whether a process that is present says that it is about to go. Workers say so
// only when they have gone: nobody needs to know earlier.
func saysLeaving(of launch.Role, m etcd.Member) bool {
	var v role.ServerValue
	return of == launch.Server && json.Unmarshal(m.Value, &v) == nil && (v.Leaving || v.Hold)
}

// views processes the newest view. A server that held shards in the last view and holds none now is
// gone. A server that holds shards is present, if it is a later life than the one known. A view
// goes on naming a server that has died or left until another takes its place. So if a life has not
// been seen yet, or has gone, only the leases can say that it is present.
func (p *presence) views(now time.Time, v kintsugi.View) (gone []departure, came []launch.Part) {
	before := p.view
	p.view = v
	for i, m := range v.Servers {
		id, part := kintsugi.ServerID(i), launch.Part{Role: launch.Server, Index: i}
		was, known := p.there[part]
		leased := p.leases[uint32(i)] == m.Incarnation
		switch {
		case look.Holds(v, id) && known && was.incarnation < m.Incarnation:
			if !was.gone {
				gone = append(gone, departure{part, was, v.Reason})
			}
			came = append(came, part)
			p.set(part, present{incarnation: m.Incarnation, since: now, leased: leased})
		case look.Holds(v, id) && was.gone && was.incarnation == m.Incarnation && leased:
			came = append(came, part)
			p.set(part, present{incarnation: m.Incarnation, since: now, leased: true})
		case !look.Holds(v, id) && (!known || was.incarnation == m.Incarnation): // its lease may disagree for some seconds
			if known && !was.gone && (look.Holds(before, id) || was.recorded) { // a server that is missing in the first view had gone before
				gone = append(gone, departure{part, was, v.Reason})
			}
			p.set(part, present{incarnation: m.Incarnation, since: was.since, leased: leased, gone: true})
		}
	}
	return gone, came
}

// viewHas reports whether a life holds a shard in the newest view.
func (p *presence) viewHas(index uint32, inc kintsugi.Incarnation) bool {
	return int(index) < len(p.view.Servers) && p.view.Servers[index].Incarnation == inc && look.Holds(p.view, kintsugi.ServerID(index))
}

func (p *presence) set(part launch.Part, x present) {
	if p.there == nil {
		p.there = make(map[launch.Part]present)
	}
	p.there[part] = x
}
