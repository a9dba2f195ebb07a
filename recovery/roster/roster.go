package roster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Config says which servers a run wants. Zero fields mean the defaults given here.
type Config struct {
	// Servers is their number, at least 1. There are as many shards.
	Servers int

	// Replicas is the length of each shard's chain, at most Servers. Default 1.
	Replicas int

	// Copies says that only the head of a shard has everything, and other replicas have the shard
	// as it was some steps ago. If the head is gone, the next replica heads the shard with its
	// copy, on a line that begins at once and keeps the other shards as they are.
	Copies bool

	// NextAnswers says that the head and the next replica of a shard have everything, and those
	// behind may lack released steps. A replica that becomes the next one may lack some too, until
	// it has said that it has caught up. If only such replicas are left, the first of them heads
	// the shard with what it has, as with Copies.
	NextAnswers bool

	// Chooses lets Wanted change Replicas during the run.
	Chooses bool

	// ResumeFrom is the checkpoint that the very first view starts from. Default: the newest one
	// that is found or, if there is none, the initialisation.
	ResumeFrom Checkpoint

	// Partial restores only the shards of which no replica is left, as long as some shard has one.
	// The next line keeps what servers have of the others, in memory or outside their processes.
	// Default: every loss takes all shards back to one full checkpoint.
	Partial bool

	// MoveAfter is how long a server may be away. After that, the other servers, if there are any,
	// take over its shards until it is back. Default 0: for ever.
	MoveAfter time.Duration

	// Hold matters for a view in which no server of the view before takes part. Such a view waits
	// for Hold after the last of those servers was seen. Where two lives of one place can run at
	// once, set it to the time to live of a server's lease plus the bound on the error of clocks.
	// Default 0, for places whose old life is dead before the next one starts; the launcher and a
	// StatefulSet make sure of that.
	Hold time.Duration

	// Settle is how long no new report of servers out of reach must have come before one is left
	// out for it. A server that is cut off from several others is named by all of them, and each
	// notices it in its own time. Default 5 s.
	Settle time.Duration

	// LapsesForgiven lets a view stand when a server that was away comes back as the same
	// incarnation: it has its state, and no other life took its place. Default: its absence counts
	// as a loss.
	LapsesForgiven bool
}

// Checkpoint is a full checkpoint that can be restored. The zero Checkpoint means that there is
// none.
type Checkpoint struct {
	Manifest string // name of the run manifest
	Step     kintsugi.Step
	Line     kintsugi.Line // on which it was saved
}

// Event is something that the shell has learned. The types below are all events.
type Event interface{ event() }

// Joined says that a life of a server is present. Since is the revision since which it has filled
// its place without a gap.
type Joined struct {
	Member kintsugi.Member
	Since  int64

	// Whole is the server's report that it has caught up: the newest view that took it into chains,
	// or moved it up in one, and in which it has caught up with all of them; 0: none. A server that
	// a line began with does not need to report it.
	Whole kintsugi.ViewNumber
	// Leaving says that this life is about to go: it asks to be left out as soon as nobody needs
	// it.
	Leaving bool

	// Holds is the line of the state that this life has found outside its process, in the memory
	// that the life before it left there. 0: none.
	Holds kintsugi.Line

	// Apart has the lives of other servers that this one reports as out of reach.
	Apart []kintsugi.Life
}

// Left says that a place is empty: its lease lapsed, or its server said good-bye.
type Left struct{ Server kintsugi.ServerID }

// Died says that a life has ended although it still has its lease. If it was wrongly taken for
// dead, it comes back with Joined.
type Died struct {
	Server      kintsugi.ServerID
	Incarnation kintsugi.Incarnation
}

// Viewed says which view is the newest, and the revision at which it was put; nil: there is none
// yet. The shell must handle it first of all, and after each view that it has put or read.
type Viewed struct {
	View *kintsugi.View
	At   int64
}

// Wanted says how many replicas each shard is to have, and why, if Config.Chooses. The change is
// made once every server of the view is present and has what a view with that number needs. It
// waits until failures are repaired.
type Wanted struct {
	Replicas int
	Why      string // a sentence
}

// Found answers a Decision that asks. It is valid for the next Decide only, because there may be a
// newer checkpoint later.
type Found struct {
	Newest    Checkpoint
	Fence     kintsugi.Fence // taken for the next view
	FenceOnly bool           // as in the Decision: Newest was not looked up
}

func (Joined) event() {}
func (Left) event()   {}
func (Died) event()   {}
func (Viewed) event() {}
func (Found) event()  {}
func (Wanted) event() {}

// Decision says what to do, and why.
type Decision struct {
	// View is to be put in place of the newest one; nil: nothing to put. The caller owns it.
	View *kintsugi.View

	// Ask means that a new view is due: look up what Found contains, Handle it and Decide again. If
	// FenceOnly is set, the view goes on with the present line, and needs no checkpoint.
	Ask       bool
	FenceOnly bool

	// Again, if it is not zero, is when to Decide again even if nothing happens.
	Again time.Time

	// Reason is a sentence for the log. It is never empty, and stays the same while nothing
	// changes.
	Reason string
}

// State is what a coordinator knows. It is deterministic: the same events at the same times give
// the same decisions. It is not safe for concurrent use.
type State struct {
	cfg     Config
	present map[kintsugi.ServerID]Joined
	away    map[kintsugi.ServerID]time.Time // missing servers without a lease, and since when, as far as known
	silent  map[kintsugi.ServerID]bool      // servers that are taken for dead and still have a lease
	found   *Found
	wanted  Wanted

	apart   []pair    // that do not reach each other, at the last decision, ascending
	apartAt time.Time // when the newest of them was reported

	now      time.Time // of the decision
	replicas int       // that each shard has, or will have next

	view     *kintsugi.View
	viewedAt int64     // revision of view
	lastSeen time.Time // when a server of view was last known to be present
}

// New returns the state of a coordinator that knows nothing yet. Settings that make no sense are an
// ErrUsage.
func New(cfg Config) (*State, error) {
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Servers < 1 {
		return nil, fmt.Errorf("%w: a run needs at least one server, not %d", kintsugi.ErrUsage, cfg.Servers)
	}
	if cfg.Replicas < 1 || cfg.Replicas > cfg.Servers {
		return nil, fmt.Errorf("%w: %d replicas on %d servers: choose 1 to %d", kintsugi.ErrUsage, cfg.Replicas, cfg.Servers, cfg.Servers)
	}
	if cfg.MoveAfter < 0 {
		return nil, fmt.Errorf("%w: what servers hold cannot move after %v", kintsugi.ErrUsage, cfg.MoveAfter)
	}
	if cfg.Settle == 0 {
		cfg.Settle = 5 * time.Second
	}
	return &State{
		cfg: cfg, replicas: cfg.Replicas, present: make(map[kintsugi.ServerID]Joined), away: make(map[kintsugi.ServerID]time.Time),
		silent: make(map[kintsugi.ServerID]bool),
	}, nil
}

// Handle takes note of an event that happened before or at now.
func (s *State) Handle(now time.Time, e Event) {
	switch e := e.(type) {
	case Joined:
		s.saw(now, e.Member.Server)
		s.comes(now, e)
	case Left:
		s.saw(now, e.Server)
		s.misses(now, e.Server)
	case Died:
		if j, ok := s.present[e.Server]; ok && j.Member.Incarnation == e.Incarnation {
			s.saw(now, e.Server)
			delete(s.present, e.Server)
			s.silent[e.Server] = true
		}
	case Viewed:
		s.view, s.viewedAt, s.lastSeen = e.View, e.At, now
	case Found:
		s.found = &e
	case Wanted:
		s.wanted = e
	default:
		panic(fmt.Sprintf("roster: unknown event %T", e))
	}
}

// saw notes that the life that has filled a place was present until now, if the view names it.
func (s *State) saw(now time.Time, id kintsugi.ServerID) {
	if j, ok := s.present[id]; ok && s.fate(j) == kept {
		s.lastSeen = now
	}
}

// fate says what has become of a server's replica since the view was put.
type fate int

const (
	kept     fate = iota // the view names this life, and it has not been away
	lapsed               // the view names this life, but it has been away
	replaced             // the view names another life, whose state is gone
)

func (s *State) fate(j Joined) fate {
	id := int(j.Member.Server)
	switch {
	case s.view == nil || id >= len(s.view.Servers) || s.view.Servers[id].Incarnation != j.Member.Incarnation:
		return replaced
	case j.Since > s.viewedAt && !s.cfg.LapsesForgiven:
		return lapsed
	}
	return kept
}

// Decide returns what is to be done at now.
func (s *State) Decide(now time.Time) Decision {
	found := s.found
	s.found, s.now = nil, now
	s.choose()
	again := s.patience()
	if at := s.meet(); again.IsZero() || !at.IsZero() && at.Before(again) {
		again = at
	}
	if d, ok := s.goOn(found); ok {
		if !d.Ask && d.View == nil {
			d.Again = again
		}
		return d
	}
	if awaited := s.awaited(); len(awaited) > 0 {
		return Decision{Reason: s.waiting(awaited), Again: again}
	}
	why := s.whyNew()
	if why == "" {
		return Decision{Reason: s.stands(), Again: again}
	}
	if until := s.lastSeen.Add(s.cfg.Hold); s.view != nil && !s.anyKept() && now.Before(until) {
		return Decision{Again: until, Reason: fmt.Sprintf(
			"%s; nobody of view %d is left, and its leases must lapse before the next one starts", why, s.view.Number)}
	}
	switch on := s.goesOn(); {
	case on && found == nil:
		return Decision{Ask: true, FenceOnly: true, Reason: why + "; the line goes on"}
	case !on && (found == nil || found.FenceOnly):
		return Decision{Ask: true, Reason: why + "; looking for the newest checkpoint"}
	}
	v := s.next(*found, why)
	return Decision{View: v, Reason: v.Reason}
}

// absent returns the servers that the run wants and that are missing, ascending.
func (s *State) absent() []kintsugi.ServerID {
	var ids []kintsugi.ServerID
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		if _, ok := s.present[id]; !ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *State) anyKept() bool {
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		if s.fate(s.present[id]) == kept {
			return true
		}
	}
	return false
}

// goesOn reports whether the line of the view can go on in the next view, with one replica: each
// head must still hold its shard, in the memory of its process or outside.
func (s *State) goesOn() bool {
	if s.replicas > 1 || !s.placed() {
		return false
	}
	found := false // a lapse alone does not show what is held
	for i, chain := range s.view.Chains {
		j, present := s.present[chain[0]]
		switch {
		case !present:
			return false
		case s.fate(j) != replaced:
			continue
		case j.Holds != s.view.Line || int(chain[0]) != i: // outside its process, a server keeps its own shard only
			return false
		}
		found = true
	}
	return found
}

// next returns the view that follows. It is called only when no server is waited for.
//
// A loss that neither chains nor states outside processes make up for starts a new line. That is so
// after a partial restore too: a version of the line before has other parameters than the version
// of the same number on the new line, and gradients on it must not count.
func (s *State) next(found Found, why string) *kintsugi.View {
	v := &kintsugi.View{Number: 1, Fence: found.Fence, Replicas: s.replicas}
	from := found.Newest
	line := found.Newest.Line
	if s.view == nil {
		if s.cfg.ResumeFrom.Manifest != "" {
			from = s.cfg.ResumeFrom
		}
		line = max(line, from.Line)
	} else {
		v.Number = s.view.Number + 1
		v.Fence = max(v.Fence, s.view.Fence+1)
		line = max(line, s.view.Line)
		if from.Manifest == "" { // nothing was saved since the line began, so it begins again where it did
			from = Checkpoint{Manifest: s.view.Restore, Step: s.view.RestoreStep}
		}
	}
	v.Line = line + 1
	v.Restore, v.RestoreStep = from.Manifest, from.Step
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		if j, ok := s.present[id]; ok {
			v.Servers = append(v.Servers, j.Member)
		} else { // it holds nothing, and keeps its place
			v.Servers = append(v.Servers, s.view.Servers[id])
		}
	}
	v.Chains = s.places(s.isPresent)
	if v.Continues = s.goesOn(); v.Continues {
		was := s.view
		v.Line, v.Keeps, v.Lost, v.Restore, v.RestoreStep = was.Line, was.Keeps, slices.Clone(was.Lost), was.Restore, was.RestoreStep
		v.From = slices.Clone(was.From)
		for i := range v.Chains {
			v.Chains[i] = was.Chains[i][:1:1] // servers that must catch up come in again
		}
		for id := range v.Servers {
			if s.lives(kintsugi.ServerID(id)) {
				v.Servers[id].Since = was.Servers[id].Since
			}
		}
		v.Places = slices.DeleteFunc(slices.Clone(was.Places), func(p kintsugi.Place) bool {
			return !s.lives(p.Server) || v.Chains[p.Shard][0] != p.Server
		})
	} else {
		s.keep(v)
	}
	switch {
	case s.view == nil:
		v.Losses = int(line)
	case !v.Continues && (v.Keeps == 0 || len(v.Lost) > 0):
		v.Losses = s.view.Losses + 1
	default:
		v.Losses = s.view.Losses
	}
	switch {
	case v.Continues:
		v.Reason = why + ": the line goes on, no step is taken back"
	case v.Keeps != 0 && len(v.Lost) == 0:
		v.Reason = why + ": every shard stays as it is"
	case v.Keeps != 0:
		v.Reason = why + ": what is lost comes back as it was saved last, the rest stays as it is"
	case from.Manifest == "":
		v.Reason = why + ": all shards start from the initialisation"
	default:
		v.Reason = fmt.Sprintf("%s: all shards restore step %d", why, from.Step)
	}
	v.Reason += s.whereTo(v)
	v.Conductor = v.Chains[0][0]
	return v
}

// chains returns the servers of each shard: shard i has its head on server i and its other replicas
// on the servers after it, around the ring, so that every server has the same load.
func chains(servers, replicas int) [][]kintsugi.ServerID {
	all := make([][]kintsugi.ServerID, servers)
	for i := range all {
		for r := range replicas {
			all[i] = append(all[i], kintsugi.ServerID((i+r)%servers))
		}
	}
	return all
}

// whyNew says in words why the newest view cannot go on; empty: it can. It is called only when no
// server is waited for.
func (s *State) whyNew() string {
	n := s.cfg.Servers
	if s.view == nil {
		return everybody(n) + " registered"
	}
	if len(s.view.Servers) != n {
		return fmt.Sprintf("the run has %s now, view %d has %d", count(n, "server"), s.view.Number, len(s.view.Servers))
	}
	if s.cfg.Chooses && s.replicas != s.view.Replicas {
		return fmt.Sprintf("each shard is to have %s: %s", count(s.replicas, "replica"), s.wanted.Why)
	}
	if !s.placed() {
		return fmt.Sprintf("each shard has %s now, view %d places them otherwise", count(s.replicas, "replica"), s.view.Number)
	}
	var gone, back, away []string
	for id := range kintsugi.ServerID(n) {
		j, present := s.present[id]
		switch {
		case !present && (s.replicas > 1 || s.headsAny(id)):
			gone = append(gone, s.hasLeft(id))
		case !present:
			continue
		case s.fate(j) == replaced:
			back = append(back, fmt.Sprintf("server/%d came back as incarnation %d", id, j.Member.Incarnation))
		case s.fate(j) == lapsed:
			away = append(away, fmt.Sprintf("server/%d was away and is back as incarnation %d", id, j.Member.Incarnation))
		}
	}
	lost := slices.Concat(gone, back, away)
	switch {
	case len(lost) == 0:
		return ""
	case s.goesOn():
		return enumerate(lost) + " and found what it held outside its process"
	case s.cfg.Partial:
		return enumerate(lost) + s.whatIsLost()
	case len(gone)+len(back) == 0:
		return enumerate(lost) + "; what went on meanwhile is unknown"
	case len(lost) == 1:
		return lost[0] + "; its shard is lost"
	}
	return enumerate(lost) + "; their shards are lost"
}

// waiting says in words which servers a view has to wait for.
func (s *State) waiting(absent []kintsugi.ServerID) string {
	names := make([]string, len(absent))
	for i, id := range absent {
		names[i] = fmt.Sprintf("server/%d", id)
	}
	is, them := "is", "it"
	if len(absent) > 1 {
		is, them = "are", "them"
	}
	if s.view == nil {
		return fmt.Sprintf("waiting for %s: %d of %s registered", enumerate(names), s.cfg.Servers-len(absent), count(s.cfg.Servers, "server")) + s.unwanted()
	}
	if had := len(s.view.Servers); int(absent[0]) >= had { // those that the view names are all present
		return fmt.Sprintf("waiting for %s: the run has %s now, view %d has %d", enumerate(names), count(s.cfg.Servers, "server"), s.view.Number, had) + s.unwanted()
	}
	most := ""
	if s.movable() && len(absent) < s.cfg.Servers {
		most = fmt.Sprintf(", %v at most", s.cfg.MoveAfter)
	}
	return fmt.Sprintf("%s %s away: view %d waits for %s%s", enumerate(names), is, s.view.Number, them, most) + s.unwanted()
}

// unwanted names the servers that have registered in places that the run does not have, which is
// the likely reason why another one is missing. Empty: there are none.
func (s *State) unwanted() string {
	var names []string
	for id := range s.present {
		if int(id) >= s.cfg.Servers {
			names = append(names, fmt.Sprintf("server/%d", id))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("; there is no place for %s", enumerate(names))
}

// enumerate joins phrases to "a, b and c". Of many, it gives the first and a count, so that a
// reason is one line.
func enumerate(phrases []string) string {
	const most = 4
	n := len(phrases)
	switch {
	case n == 1:
		return phrases[0]
	case n <= most:
		return strings.Join(phrases[:n-1], ", ") + " and " + phrases[n-1]
	}
	return fmt.Sprintf("%s and %d more", strings.Join(phrases[:most-1], ", "), n-most+1)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func everybody(n int) string {
	if n == 1 {
		return "the server has"
	}
	return fmt.Sprintf("all %d servers have", n)
}
