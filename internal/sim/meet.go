package sim

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// meeting says which two deaths happen together, each at a moment at which it makes the other
// worse. Random faults hit such moments now and then. Here each is hit again and again, and it is
// known beforehand what is lost.
type meeting uint8

const (
	noMeeting            meeting = iota
	headAndTail                  // of one shard
	headAndWorker                // a head in the middle of a step, and a worker whose gradient it is summing
	serverAndCoordinator         // a server, and the coordinator that would publish the view without it
	joinerAgain                  // a server, and its next life when it has a snapshot but is not whole
	joinerAndSource              // a server, and, when its next life has a snapshot, the one that has sent it
	serverAsItNames              // the conductor's, when every shard is saved and the run manifest has no name yet, or has just got one
	allServers
	headAndNext // of one shard
	meetings
)

var meetingNames = [meetings]string{
	"", "head and tail", "a head and a counted worker", "a server and the coordinator", "a server that catches up", "the one that a server catches up from",
	"a server as a checkpoint gets its name", "all servers", "head and next",
}

// String says which processes die.
func (m meeting) String() string { return meetingNames[m] }

// Number of meetings in a run, and how often the simulation checks whether all servers are there.
const (
	meetingsOfARun = 3
	meetAgain      = 5 * time.Millisecond
)

// scheduleMeetings schedules the meetings, each when all servers are there and whole again.
func (c *Cluster) scheduleMeetings() {
	if c.cfg.meet == noMeeting || c.met == meetingsOfARun {
		return
	}
	c.after(nil, c.between(c.cfg.meetEvery/2, c.cfg.meetEvery), c.prepareMeeting)
}

// prepareMeeting kills the processes, or waits for the right moment.
func (c *Cluster) prepareMeeting() {
	if !c.everybodyIsWhole() {
		c.after(nil, meetAgain, c.prepareMeeting)
		return
	}
	v := c.registry.view
	switch c.cfg.meet {
	case headAndTail:
		chain := v.Chains[c.rng.IntN(len(v.Chains))]
		c.meet(c.servers[chain[0]].proc, c.servers[chain[len(chain)-1]].proc)
	case headAndNext:
		chain := v.Chains[c.rng.IntN(len(v.Chains))]
		c.meet(c.servers[chain[0]].proc, c.servers[chain[min(1, len(chain)-1)]].proc)
	case serverAndCoordinator:
		c.meet(c.coordinator.proc, c.servers[c.rng.IntN(len(c.servers))].proc)
	case allServers:
		var all []*proc
		for _, s := range c.servers {
			all = append(all, s.proc)
		}
		c.meet(all...)
	case joinerAgain, joinerAndSource:
		c.awaited = c.cfg.meet
		c.kill(c.servers[c.rng.IntN(len(c.servers))].proc, "killed")
	default:
		c.awaited = c.cfg.meet
	}
}

// meet kills processes together.
func (c *Cluster) meet(together ...*proc) {
	for _, p := range together {
		c.kill(p, "killed with another")
	}
	c.met++
	c.scheduleMeetings()
}

// moment says that the moment that m waits for begins now and takes the given time; the victims die
// during it. If nobody waits for it, it draws no random numbers, so that other runs stay the same.
func (c *Cluster) moment(m meeting, took time.Duration, victims ...*proc) {
	if c.awaited != m {
		return
	}
	c.awaited = noMeeting
	c.after(nil, c.between(0, took), func() { c.meet(victims...) })
}

// summing is the moment of headAndWorker.
func (c *Cluster) summing(r *replica, commit kintsugi.Commit, took time.Duration) {
	if c.awaited != headAndWorker || len(commit.Counted) == 0 {
		return
	}
	slot := commit.Counted[c.rng.IntN(len(commit.Counted))].Push.Slot
	c.moment(headAndWorker, took, r.t.server.proc, c.workers[slot].proc)
}

// tookOver is the moment of joinerAgain and joinerAndSource.
func (c *Cluster) tookOver(r *replica, from *replica) {
	c.moment(joinerAgain, 0, r.t.server.proc)
	c.moment(joinerAndSource, 0, from.t.server.proc)
}

// everybodyIsWhole reports whether every server serves the view that counts and has all of its
// shards, and the coordinator knows it.
func (c *Cluster) everybodyIsWhole() bool {
	v, o := c.registry.view, c.coordinator
	if v == nil || !o.leads || o.dead {
		return false
	}
	for i, s := range c.servers {
		t := s.tenure
		if s.dead || t == nil || t.view.Number != v.Number || v.Servers[i].Incarnation != s.member.Incarnation || o.present[i].Member != s.member {
			return false
		}
		if c.cfg.chains() && o.present[i].Whole < v.Newest(s.member.Server) {
			return false
		}
		for _, r := range t.replicas {
			if r != nil && (!r.core.Whole() || !r.core.Settled()) {
				return false
			}
		}
	}
	for _, chain := range v.Chains {
		if len(chain) < max(1, c.cfg.Replicas) {
			return false
		}
	}
	return true
}
