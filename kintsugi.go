package kintsugi

import (
	"fmt"
	"math"
)

// ProtocolVersion is the version of the messages between processes. Processes of different versions
// refuse one another when they connect.
const ProtocolVersion = 2

// Identifiers. None is reused within a run, so that an address never serves as an identity.
type (
	// Line is a timeline of the run, counted from 1. A full restore starts a new line. Messages of
	// another line are refused; otherwise late pushes of abandoned steps would count again.
	Line uint64

	// Fence grows with every new conductor, view and writer. A receiver that has promised one
	// refuses smaller ones.
	Fence uint64

	// Step counts optimizer steps of the whole model, from 1. Used as a version, it names the
	// parameters after that step; version 0 is the initialisation.
	Step uint64

	// ViewNumber counts views, from 1.
	ViewNumber uint64

	// Slot is a worker's place in a run, from 0. Gradients are summed in the order of slots.
	Slot uint32

	// Incarnation is one life of a process in its slot or server place. A later life has a larger number.
	Incarnation uint64

	// ServerID is a server's place in a run, from 0.
	ServerID uint32

	// ShardID numbers the shards of a model, from 0.
	ShardID uint32

	// ChunkID numbers the chunks of a model, from 0, in the order of the flat parameter vector.
	ChunkID uint32
)

// PushID names one gradient. Everything random about a gradient (batch, dropout masks, stochastic
// rounding) is a pure function of the run's seed, Slot, Version and Sequence. So a worker that dies
// and comes back computes the same gradient again.
type PushID struct {
	Line        Line
	Slot        Slot
	Incarnation Incarnation
	Version     Step   // of the parameters the gradient was computed on
	Sequence    uint32 // numbers the gradients of one worker on one version, from 0
}

// String returns the id in the form used by logs and errors, such as "worker/2 version 41".
func (p PushID) String() string {
	s := fmt.Sprintf("worker/%d version %d", p.Slot, p.Version)
	if p.Sequence > 0 {
		s += fmt.Sprintf(" sequence %d", p.Sequence)
	}
	return s
}

// Compare orders pushes by (slot, version, sequence): the order in which a step sums its gradients.
// Float addition is not associative, so the order is part of what a step means.
func (p PushID) Compare(q PushID) int {
	switch {
	case p.Slot != q.Slot:
		return compare(p.Slot, q.Slot)
	case p.Version != q.Version:
		return compare(p.Version, q.Version)
	default:
		return compare(p.Sequence, q.Sequence)
	}
}

func compare[T ~uint32 | ~uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Member is one life of a server in its place.
type Member struct {
	Server      ServerID    `json:"server"`
	Incarnation Incarnation `json:"incarnation"`
	Address     string      `json:"address"` // host:port of its gRPC endpoint

	// Since is the view that took this member into chains of a line that had already begun: the
	// member then had to catch up with the replicas before it. 0: it has been in its chains since
	// the line began.
	Since ViewNumber `json:"since,omitempty"`
}

// Life names one life of a server: the fields of a Member that identify it.
type Life struct {
	Server      ServerID    `json:"server"`
	Incarnation Incarnation `json:"incarnation"`
}

// Life returns the life of a member.
func (m Member) Life() Life { return Life{Server: m.Server, Incarnation: m.Incarnation} }

// View is a numbered configuration of the servers: the unit in which membership changes.
type View struct {
	Number  ViewNumber `json:"number"`
	Line    Line       `json:"line"` // the line of the view before, if its steps go on
	Fence   Fence      `json:"fence"`
	Servers []Member   `json:"servers"` // by ServerID

	// Chains lists the servers that hold each shard, head first; the index is the ShardID. A server
	// that is in no chain, because it died, keeps its place in Servers.
	Chains [][]ServerID `json:"chains"`

	// Places lists the places in Chains that a server took later than its Member.Since: see Since.
	Places []Place `json:"places,omitempty"`

	// Replicas is the number of servers that hold each shard when all of them live.
	Replicas int `json:"replicas,omitempty"`

	// Moved is set only where the next replica answers for the replicas behind it, without waiting
	// for them. Its index is the ShardID. Each entry is the view in which a replica from further
	// down became the next replica of its chain; until that replica has caught up, it may lack
	// released steps. 0: the next replica has been next since it caught up.
	Moved []ViewNumber `json:"moved,omitempty"`

	// Conductor is the server beside whose replica the conductor runs: the head of shard 0.
	Conductor ServerID `json:"conductor"`

	// Keeps is set on a line that begins with a partial restore, at the step at which the surviving
	// shards of the line before stand. It is the first of the lines whose state in memory is the
	// state of Line too. 0: all shards start from Restore. Later views of Line have the same value.
	Keeps Line `json:"keeps,omitempty"`

	// Lost lists the shards that no server had any more when a line with Keeps began. Their heads
	// assemble them from the running checkpoint; where replicas get copies in place of updates, the
	// heads go on with the copies that they have. The heads of all other shards have them, in
	// memory or outside their processes, and send them to their replicas.
	Lost []ShardID `json:"lost,omitempty"`

	// From says from which line on a state that a server has left outside its process counts; its
	// index is the ShardID. An entry that is not 0 is the line on which the shard was lost and came back.
	// nil and 0: from the line Keeps on, or from Line if Keeps is 0.
	From []Line `json:"from,omitempty"`

	// Losses says how often the run has lost shards: how many of its lines began because no server
	// had some shard any more. A resumed run begins with the number of lines before it, as what
	// ended each of them is not recorded.
	Losses int `json:"losses,omitempty"`

	// Continues says that Line is the line of the view before: every shard goes on with what its
	// server holds, in memory or outside its process. The gradients that a head held may be gone
	// with its process, so a step that not every shard has applied is decided anew.
	Continues bool `json:"continues,omitempty"`

	// Restore names the run manifest that Line starts from; empty: Line starts from the
	// initialisation. With Keeps set, Restore supplies only those chunks of lost shards that have
	// not been saved since.
	Restore     string `json:"restore,omitempty"`
	RestoreStep Step   `json:"restore_step"`

	// Run is the id of the run, drawn before its first view. No other run has the same id, whatever
	// the runs are named. A checkpoint store records it to say whose checkpoints it holds.
	Run string `json:"run,omitempty"`

	// Terms are the coordinator's terms. A server with other terms would cut the parameters into
	// other chunks, or misread messages.
	Terms Terms `json:"terms,omitzero"`

	// Reason says in words why this view replaced the one before.
	Reason string `json:"reason"`
}

// Terms are what all processes of a run must have in common. A zero field says nothing and agrees
// with every value.
type Terms struct {
	Protocol uint32 `json:"protocol,omitempty"` // ProtocolVersion
	Model    uint64 `json:"model,omitempty"`    // Layout.Agreement
}

// Agree compares two processes: who has the terms t, and by has the terms with. It returns nil if
// both may belong to one run. Otherwise it returns an ErrOtherModel that names both.
func (t Terms) Agree(who string, with Terms, by string) error {
	switch {
	case t.Protocol != with.Protocol && t.Protocol != 0 && with.Protocol != 0:
		return fmt.Errorf("%w: %s speaks protocol %d, %s %d; run the same release everywhere", ErrOtherModel, who, t.Protocol, by, with.Protocol)
	case t.Model != with.Model && t.Model != 0 && with.Model != 0:
		return fmt.Errorf("%w: %s has a model with fingerprint %016x, %s one with %016x; start all with the run's configuration", ErrOtherModel, who, t.Model, by, with.Model)
	}
	return nil
}

// Place is a server's place in the chain of a shard, and the view that took it in.
type Place struct {
	Shard  ShardID    `json:"shard"`
	Server ServerID   `json:"server"`
	Since  ViewNumber `json:"since"`
}

// Head returns the member that holds the head of shard s.
func (v *View) Head(s ShardID) Member { return v.Servers[v.Chains[s][0]] }

// Since returns the view that took a server into the chain of shard s after the line had begun. 0:
// the server has been there since the line began.
func (v *View) Since(s ShardID, server ServerID) ViewNumber {
	since := v.Servers[server].Since
	for _, p := range v.Places {
		if p.Shard == s && p.Server == server {
			since = max(since, p.Since)
		}
	}
	return since
}

// Newest returns the newest of the views that took a server into a chain, or moved it up to be the
// next replica of one. 0: the server's places are as old as the line. The other servers wait until
// it says that it has caught up since that view.
func (v *View) Newest(server ServerID) ViewNumber {
	since := v.Servers[server].Since
	for _, p := range v.Places {
		if p.Server == server {
			since = max(since, p.Since)
		}
	}
	for i, moved := range v.Moved {
		if chain := v.Chains[i]; len(chain) > 1 && chain[1] == server {
			since = max(since, moved)
		}
	}
	return since
}

// First returns the first line on which a state of shard s, left by its server outside the process,
// is still the state of the view.
func (v *View) First(s ShardID) Line {
	first := v.Line
	if v.Keeps != 0 {
		first = v.Keeps
	}
	if int(s) < len(v.From) {
		first = max(first, v.From[s])
	}
	return first
}

// Infinite, as a staleness bound or as a lead, means that there is no bound.
const Infinite = math.MaxUint32
