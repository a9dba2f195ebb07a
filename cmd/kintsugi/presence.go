package main

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// presence is who is in the places of a run, for whoever has not started the processes and cannot see them die: leases in etcd say it, and views, which
// often say it sooner. It is pure: lists, views and times in, comings and goings out, each once.
type presence struct {
	there map[launch.Part]present
	view  kintsugi.View
}

// present is a process in its place.
type present struct {
	incarnation kintsugi.Incarnation
	since       time.Time
	leaving     bool // it has said that it is about to go
	gone        bool // that is known, and its place is not filled anew
}

// departure is a process that is not in its place any more.
type departure struct {
	part launch.Part
	present
	cause string
}

// members takes the newest list of those of a role who hold a lease.
func (p *presence) members(now time.Time, role launch.Role, list []etcd.Member) (gone []departure, came []launch.Part) {
	leased := make(map[launch.Part]bool)
	for _, m := range list {
		part := launch.Part{Role: role, Index: int(m.Index)}
		leased[part] = true
		var v serverValue
		leaving := role == launch.Server && json.Unmarshal(m.Value, &v) == nil && (v.Leaving || v.Hold)
		before, known := p.there[part]
		if known && before.incarnation >= m.Incarnation { // a view may know of a later one already
			before.leaving = leaving
			p.there[part] = before
			continue
		}
		if known && !before.gone {
			gone = append(gone, departure{part, before, "another process has taken its place"})
		}
		came = append(came, part)
		p.set(part, present{incarnation: m.Incarnation, since: now, leaving: leaving})
	}
	for part, before := range p.there {
		if part.Role == role && !leased[part] && !before.gone {
			gone = append(gone, departure{part, before, "its lease in etcd is gone: it died, left, or cannot reach etcd"})
			before.gone = true
			p.there[part] = before
		}
	}
	slices.SortFunc(gone, func(a, b departure) int { return a.part.Index - b.part.Index })
	return gone, came
}

// views takes the newest view. Who held shards in the one before and holds none now is gone; who holds some is there.
func (p *presence) views(now time.Time, v kintsugi.View) (gone []departure, came []launch.Part) {
	before := p.view
	p.view = v
	for i, m := range v.Servers {
		id, part := kintsugi.ServerID(i), launch.Part{Role: launch.Server, Index: i}
		was, known := p.there[part]
		switch {
		case holds(v, id) && (!known || was.gone || was.incarnation < m.Incarnation):
			if known && !was.gone {
				gone = append(gone, departure{part, was, v.Reason})
			}
			came = append(came, part)
			p.set(part, present{incarnation: m.Incarnation, since: now})
		case !holds(v, id) && (!known || was.incarnation == m.Incarnation): // its lease may say otherwise for some seconds
			if known && !was.gone && holds(before, id) {
				gone = append(gone, departure{part, was, v.Reason})
			}
			p.set(part, present{incarnation: m.Incarnation, since: was.since, gone: true})
		}
	}
	return gone, came
}

func (p *presence) set(part launch.Part, x present) {
	if p.there == nil {
		p.there = make(map[launch.Part]present)
	}
	p.there[part] = x
}

// holds reports whether a server holds a shard in a view.
func holds(v kintsugi.View, id kintsugi.ServerID) bool {
	return slices.ContainsFunc(v.Chains, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, id) })
}
