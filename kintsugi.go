package kintsugi

import (
	"fmt"
	"math"
)

// ProtocolVersion is the version of the messages between processes. Processes of different versions
// refuse one another when they connect.
const ProtocolVersion = 2

// Identifiers. They are never reused within a run, so that an address is never an identity.
type (
	// Line is a timeline of a run, from 1. A full restore starts a new one; messages of another line
	// are refused, or late pushes of abandoned steps would count again.
	Line uint64

	// Fence grows with every new conductor, view and writer. Whoever has promised one refuses smaller ones.
	Fence uint64

	// Step counts optimizer steps of the whole model, from 1. Used as a version it names the parameters
	// after that step; version 0 is the initialisation.
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
// rounding) is a pure function of the run's seed, Slot, Version and Sequence, so that a worker that
// dies and comes back computes the same one.
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

	// Since is the view that took it into chains of a line that had begun: it caught up with those before it. 0: it
	// has been there since the line began.
	Since ViewNumber `json:"since,omitempty"`
}

// Life is one life of a server: what of a Member says who it is.
type Life struct {
	Server      ServerID    `json:"server"`
	Incarnation Incarnation `json:"incarnation"`
}

// Life returns the life of a member.
func (m Member) Life() Life { return Life{Server: m.Server, Incarnation: m.Incarnation} }

// View is a numbered configuration of the servers: the unit in which membership changes.
type View struct {
	Number  ViewNumber `json:"number"`
	Line    Line       `json:"line"` // that of the view before, if its steps go on
	Fence   Fence      `json:"fence"`
	Servers []Member   `json:"servers"` // by ServerID

	// Chains lists, per shard, the servers that hold it, head first. A server that is in none of them, because it
	// died, keeps its place in Servers.
	Chains [][]ServerID `json:"chains"`

	// Places are those of Chains that a server has come into since it was taken into another one: see Since.
	Places []Place `json:"places,omitempty"`

	// Replicas is how many servers hold each shard when all of them live.
	Replicas int `json:"replicas,omitempty"`

	// Moved says of each shard, where the next replica answers for those behind it, in which view
	// its next one came to be that after it had been behind: until it has caught up it may lack
	// released steps. 0: it has been next since it caught up.
	Moved []ViewNumber `json:"moved,omitempty"`

	// Conductor is the server beside whose replica the conductor runs: the head of shard 0.
	Conductor ServerID `json:"conductor"`

	// Keeps is the first of the lines whose state in memory is the state of Line too: Line begins with a partial
	// restore, at the step where the shards stand that outlived the line before. 0: all shards start from Restore.
	// Views that go on with Line have it, too.
	Keeps Line `json:"keeps,omitempty"`

	// Lost lists the shards that nobody has any more when a line begins that Keeps: their heads put
	// them together from the running checkpoint, or go on with the copies that they have, where
	// replicas get copies in place of updates. The heads of the others have them, in memory or
	// outside their processes, and replicas that are no heads are sent them.
	Lost []ShardID `json:"lost,omitempty"`

	// From is, by shard, the first line whose state of it counts where a server has left that
	// outside its process: the shard was lost and came back then. nil and 0: that of Keeps, or
	// Line.
	From []Line `json:"from,omitempty"`

	// Continues says that Line is that of the view before: every shard goes on with what its server
	// holds, in its memory or outside its process. What a head held of gradients may be gone with
	// its process, so that a step that not every shard has applied is decided anew.
	Continues bool `json:"continues,omitempty"`

	// Restore names the run manifest that Line starts from; empty: from the initialisation. If Line keeps an earlier
	// one, it is where those chunks of lost shards come from that were not saved since.
	Restore     string `json:"restore,omitempty"`
	RestoreStep Step   `json:"restore_step"`

	// Run is the id of the run, drawn before its first view: no other run has it, whatever their
	// names. Where checkpoints lie it says whose they are.
	Run string `json:"run,omitempty"`

	// Terms are those of the coordinator. A server that has others would cut the parameters
	// elsewhere, or misread messages.
	Terms Terms `json:"terms,omitzero"`

	// Reason says in words why this view replaced the one before.
	Reason string `json:"reason"`
}

// Terms are what all processes of a run must have in common. A zero field is not said, and agrees with anything.
type Terms struct {
	Protocol uint32 `json:"protocol,omitempty"` // ProtocolVersion
	Model    uint64 `json:"model,omitempty"`    // Layout.Agreement
}

// Agree returns nil where two processes, one called who with the terms t and one called by with
// others, may be of one run; else an ErrOtherModel that names both.
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

// Since returns the view that took a server into the chain of shard s, after the line had begun; 0:
// it has been there since the line began.
func (v *View) Since(s ShardID, server ServerID) ViewNumber {
	since := v.Servers[server].Since
	for _, p := range v.Places {
		if p.Shard == s && p.Server == server {
			since = max(since, p.Since)
		}
	}
	return since
}

// Newest returns the newest of the views that took a server into chains of which it is a member, or
// moved it up to be the next replica of one; 0: it has been there since the line began. Others wait
// for its word that it has caught up since.
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

// First returns the first line whose state of shard s is that of the view, where its server has
// left it outside its process.
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

// Infinite is the staleness bound and the lead that bound nothing.
const Infinite = math.MaxUint32
