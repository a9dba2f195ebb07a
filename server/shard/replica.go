package shard

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/chain"
)

// MaxHeld bounds the pushes of one worker that a replica holds, unless Hold sets another bound: two
// that are in flight, and as many again for what a broken connection left behind.
const MaxHeld = 4

// Verdict says what becomes of a push when its first frame arrives.
type Verdict uint8

// The verdicts.
const (
	Accept Verdict = iota // receive its bytes, then call Complete
	Have                  // its bytes are held already: acknowledge it again
	Refuse                // it can never be counted; the reason says why
)

// Ready lists what the replica has decided since the last call. The caller carries it out in the
// order of the fields.
type Ready struct {
	Overturned bool                      // throw away what was made of the commit that was foreseen last
	Withdraw   bool                      // the version that was offered may be replaced: give it to no other reader before it is released
	Free       []kintsugi.PushID         // drop the bytes of these pushes
	Adopt      *kintsugi.Step            // what the replica waited with is this version from now on, and may be read
	Publish    *kintsugi.Step            // this applied version may be read from now on
	Offer      bool                      // the version that was just applied may be sent to readers who wait until it is released before they use it
	Foreseen   *kintsugi.Commit          // its chunks may be made as they arrive; nobody may see the result before Apply. It has no fences
	Apply      *kintsugi.Commit          // start to apply it, using what was made of the foreseen commit; call Applied when done
	Save       *kintsugi.Step            // save this released version to the checkpoint, in the background
	Run        *Run                      // save these chunks of it for the running checkpoint; call Ran when done
	Down       []kintsugi.ChainMessage   // to the replica after this one, if it is connected
	Replies    []kintsugi.ReplicaMessage // to the conductor or, if the replica is not the head, to the replica before it
	Done       *kintsugi.Done            // the run is over
}

// Replica is the control state of one replica of a shard on one line. It has no lock: one goroutine
// may use it at a time.
type Replica struct {
	id       kintsugi.ShardID
	chunks   int // of the shard; without any, it gets no pushes
	line     kintsugi.Line
	view     kintsugi.ViewNumber
	promised kintsugi.Fence
	released kintsugi.Step
	applied  kintsugi.Step // on this replica; answers say when the whole chain has applied it

	follows bool // it is not the head: it obeys the replica before it, and applies updates
	lacking bool // it is not whole: released steps may be missing here
	link    chain.Link
	attempt uint64 // newest attempt of the replica after in this view

	next   bool // the replica after the head answers for those behind it: see NextAnswers
	at     int  // if next: place in the chain
	behind bool // if next: it was behind the next in an earlier view, and has not been told since that it has caught up

	every   kintsugi.Step  // steps between two copies for those behind, who then get no updates; 0: they get every update
	there   *copied        // with copies: what the replica after has; nil: it has not connected
	sent    bool           // with copies: a copy is on its way to it
	dueBy   kintsugi.Fence // with copies: fence under which the newest step that is due was decided; 0: it was not made on this line
	hasCopy bool           // with copies: one has come

	standing kintsugi.Standing
	have     []kintsugi.Step // by chunk, its version in the running checkpoint; nil: there is none

	open     *kintsugi.Commit // accepted and not applied yet
	applying bool
	asked    bool              // a conductor has sent Take while a step was being applied, and is answered when that has ended
	records  []kintsugi.Commit // of the released and the applied step, at most two, ascending
	answer   kintsugi.Stable   // to the applied step, kept for a repetition

	optimizer func(kintsugi.Step, int) kintsugi.Optimizer // see Foresee; nil: nothing is foreseen
	foreseen  *kintsugi.Commit                            // of the next step; nil: it is not known yet
	want      kintsugi.Want                               // by-products that the next commit asks for, as the conductor expects

	countable map[kintsugi.Slot]kintsugi.Countable
	change    uint64                   // number of the newest Members message under the promised fence
	held      map[kintsugi.PushID]bool // true: complete
	most      int                      // bound of the pushes of one worker

	saving map[kintsugi.Step]bool // saves under way
	saved  *kintsugi.Saved        // the newest save that succeeded, kept for a repetition

	running *Run // the save for the running checkpoint that is under way; nil: none

	ready Ready
}

// New returns a replica of a shard of so many chunks whose version can already be read: the
// initialisation, or what was restored. A shard without chunks gets no pushes and waits for none.
func New(id kintsugi.ShardID, chunks int, line kintsugi.Line, view kintsugi.ViewNumber, version kintsugi.Step) *Replica {
	return &Replica{
		id: id, chunks: chunks, line: line, view: view, released: version, applied: version,
		countable: make(map[kintsugi.Slot]kintsugi.Countable),
		held:      make(map[kintsugi.PushID]bool),
		most:      MaxHeld,
		saving:    make(map[kintsugi.Step]bool),
	}
}

// Hold sets how many pushes of one worker the replica holds before it refuses more. It must be at
// least the credit of the run's workers; otherwise the replica would refuse pushes that they may
// send. It is called before the first push.
func (r *Replica) Hold(most int) { r.most = most }

// Ready returns what the replica has decided since the last call, and clears it.
func (r *Replica) Ready() Ready {
	ready := r.ready
	r.ready = Ready{}
	return ready
}

// Released returns the newest version that may be read.
func (r *Replica) Released() kintsugi.Step { return r.released }

// Promised returns the largest fence that the replica has promised; 0: none yet.
func (r *Replica) Promised() kintsugi.Fence { return r.promised }

// Handle handles a message of a conductor. A message of another line, or with a smaller fence than
// the promised one, changes nothing, and Handle returns false. Answers go to the streams whose Take
// had the promised fence. If any Take were enough, a superseded conductor that connects again would
// get the answers for the present one.
func (r *Replica) Handle(msg kintsugi.ControlMessage) bool {
	switch m := msg.(type) {
	case kintsugi.Take:
		return r.take(m)
	case kintsugi.Members:
		if !r.obeys(m.Line, m.Fence) {
			return false
		}
		// It came on a broken stream, and is read after the stream in its place: it does not know
		// who has joined since.
		if m.Change < r.change {
			return false
		}
		r.change = m.Change
		r.setCountable(m.Countable)
		r.reply(kintsugi.MembersKnown{Shard: r.id, Fence: m.Fence, Change: m.Change})
	case kintsugi.Commit:
		if !r.obeys(m.Line, m.Fence) {
			return false
		}
		r.commit(m)
	case kintsugi.Released:
		if !r.obeys(m.Line, m.Fence) {
			return false
		}
		r.release(m)
	case kintsugi.Done:
		r.ready.Done = &m
	case kintsugi.Adopt:
		if !r.obeys(m.Line, m.Fence) {
			return false
		}
		r.adopt(m.Step)
	default:
		panic("shard: unknown control message")
	}
	return true
}

// obeys reports whether a message counts. Its fence must be the promised one, so that a conductor
// is obeyed only after it has taken the shard.
func (r *Replica) obeys(line kintsugi.Line, fence kintsugi.Fence) bool {
	return line == r.line && fence == r.promised
}

func (r *Replica) take(m kintsugi.Take) bool {
	if m.Line != r.line || m.View != r.view || m.Fence < r.promised {
		return false
	}
	if m.Fence > r.promised {
		r.promised, r.change, r.ready.Withdraw = m.Fence, 0, true
	}
	r.down(m)
	if r.applying && !r.follows {
		r.asked = true
	} else {
		r.reply(r.state())
	}
	return true
}

// state returns what a conductor must know when it takes the replica.
func (r *Replica) state() kintsugi.Taken {
	t := kintsugi.Taken{
		Shard: r.id, Fence: r.promised, Applied: r.applied, Released: r.released, Records: slices.Clone(r.records),
		Standing: r.standing, Saved: slices.Clone(r.have),
	}
	if r.open != nil {
		t.Records = append(t.Records, *r.open)
		t.Lacks = r.wanting()
	}
	return t
}

// wanting returns the pushes that are missing for the open commit.
func (r *Replica) wanting() (list []kintsugi.PushID) {
	if r.chunks == 0 || r.follows {
		return nil // it applies sums, or nothing
	}
	for _, w := range r.open.Counted {
		if !r.held[w.Push] {
			list = append(list, w.Push)
		}
	}
	return list
}

func (r *Replica) commit(m kintsugi.Commit) {
	switch {
	case r.standing != kintsugi.Settled:
		return // the line has not begun here
	case m.Step != r.released+1:
		// It was released long ago, or this shard has not seen the step before: Taken tells the
		// conductor.
		return
	case r.open != nil && r.open.Decided >= m.Decided:
		r.open.Fence = m.Fence // the same decision under a later fence
	case r.open == nil && r.applied == m.Step && r.answer.Step == m.Step && r.decided() >= m.Decided:
		r.answer.Fence, r.answer.Decided = m.Fence, r.decided()
		r.down(m)
		r.reply(r.answer)
		return
	default:
		// A new step, or one that is applied but not released and was decided again under a higher
		// fence. It is applied to the released version, which is still whole, so nothing has to be
		// undone.
		if r.applied == m.Step {
			r.applied--
			r.records = r.records[:len(r.records)-1]
		}
		r.open = &m
		r.setCountable(m.Countable)
	}
	r.start()
}

// start begins to apply the open commit once every push that it counts is here. A commit of an
// earlier conductor waits until the present conductor sends it too. If the line goes on after a
// loss, the present conductor may decide the step anew. What it does until then would be wrong if
// the old commit counted after all: for example, it may let a new life of a worker that the commit
// counts begin on the version before. For the same reason a Take is not answered while a step is
// being applied: the answer says for good whether a commit is applied under the earlier fences.
func (r *Replica) start() {
	if r.open == nil || r.applying || !r.follows && r.open.Fence != r.promised {
		return
	}
	if len(r.wanting()) > 0 {
		return
	}
	r.applying = true
	c := *r.open
	r.decide(&c)
	r.ready.Apply = &c
}

// Applied reports that the commit of Ready.Apply is applied here. decided is the fence under which
// that commit was decided: if another decision has replaced it meanwhile, the step is applied
// again. took is the duration, and pushed and pulled are bytes. The conductor gets the answer when
// all replicas behind have applied the step too.
func (r *Replica) Applied(decided kintsugi.Fence, products []kintsugi.Products, took time.Duration, pushed, pulled uint64) {
	r.applying = false
	defer func() {
		if r.asked {
			r.asked = false
			r.reply(r.state())
		}
	}()
	if r.open == nil || r.open.Decided != decided {
		r.start()
		return
	}
	c := *r.open
	r.open = nil
	// Its decider is the present conductor, who decides each step once. What an earlier one decided
	// might be decided anew, and a reader who hears that the step is released would have another
	// version of it from here.
	r.ready.Offer = c.Decided == r.promised && !r.follows
	r.applied = c.Step
	r.records = append(r.records, c)
	if len(r.records) > 2 {
		r.records = r.records[len(r.records)-2:]
	}
	r.answer = kintsugi.Stable{Shard: r.id, Fence: c.Fence, Step: c.Step, Decided: c.Decided, Products: products, Apply: took, Pushed: pushed, Pulled: pulled}
	r.down(kintsugi.Update{Commit: c})
	if r.copies() && r.due() == c.Step {
		r.dueBy = c.Decided
	}
	r.copy()
	r.reply(r.answer)
}

func (r *Replica) release(m kintsugi.Released) {
	switch {
	case r.standing != kintsugi.Settled:
		return
	case m.Step <= r.released: // a repetition, or the wish to save a version that can be read already
	case m.Step == r.released+1:
		if r.applied != m.Step {
			return // never stable here: the conductor finds out when it takes the shard again
		}
		r.released, r.want = m.Step, m.Want
		if !r.follows { // a replica before this one may still wait for the answer
			r.link.Released(m.Step)
		}
		for _, w := range r.records[len(r.records)-1].Counted {
			r.free(w.Push)
		}
		r.sweep()
		r.ready.Publish = &m.Step
		wish := m
		wish.Save, wish.Run, wish.Want = false, nil, 0 // only heads save and foresee
		r.down(wish)
		r.copy()
		r.foresee()
	default:
		return
	}
	if m.Save && !r.follows {
		r.save(m.Step)
	}
	if r.ready.Publish != nil && len(m.Run) > 0 && !r.follows {
		r.run(m)
	}
}

// save asks for a save once, however often the wish arrives, because two writers of one version
// would disturb each other.
func (r *Replica) save(step kintsugi.Step) {
	switch {
	// The end of that save is reported to whoever is the conductor then.
	case r.saving[step]:
	case r.saved != nil && r.saved.Step == step:
		r.reply(*r.saved)
	case step != r.released:
		r.reply(kintsugi.Saved{Shard: r.id, Step: step, Err: fmt.Sprintf("version %d is not here any more, the newest is %d", step, r.released)})
	default:
		r.saving[step] = true
		r.ready.Save = &step
	}
}

// Saved reports the end of the save of s.Step to the conductor.
func (r *Replica) Saved(s kintsugi.Saved) {
	delete(r.saving, s.Step)
	if s.Err == "" {
		r.saved = &s
		for i := range r.have {
			r.have[i] = max(r.have[i], s.Step)
		}
	}
	r.reply(s)
}

// Begin says what becomes of a push whose first frame has arrived, with a reason if it is refused.
func (r *Replica) Begin(p kintsugi.PushID) (Verdict, string) {
	if p.Line != r.line {
		return Refuse, fmt.Sprintf("it is of line %d, this shard is on line %d", p.Line, r.line)
	}
	if complete, ok := r.held[p]; ok {
		if complete {
			return Have, ""
		}
		r.overturnOf(p)
		r.foresee()
		return Accept, "" // a worker that has connected again sends it from the start
	}
	if reason := r.uncountable(p); reason != "" {
		return Refuse, reason
	}
	n := 0
	for q := range r.held {
		if q.Slot == p.Slot {
			n++
		}
	}
	if n >= r.most {
		return Refuse, fmt.Sprintf("%d pushes of worker/%d are held and not released; it must wait", n, p.Slot)
	}
	r.held[p] = false
	r.foresee()
	return Accept, ""
}

// Complete notes that all bytes of a push have landed and are verified. It reports whether the push
// is still wanted; if not, the caller tells the worker the reason.
func (r *Replica) Complete(p kintsugi.PushID) (bool, string) {
	if _, ok := r.held[p]; !ok {
		if reason := r.uncountable(p); reason != "" {
			return false, reason
		}
		return false, "it was freed while it arrived"
	}
	r.held[p] = true
	r.start()
	return true, ""
}

// Awaited returns the version that the worker of a refused push must wait for. If the push was
// late, the commit of that version may be here although it is not released yet.
func (r *Replica) Awaited(p kintsugi.PushID) kintsugi.Step {
	if c, ok := r.countable[p.Slot]; ok && c.Incarnation == p.Incarnation {
		return max(r.released, c.Oldest)
	}
	return r.released
}

// Drop forgets a push that did not arrive whole or is not finite.
func (r *Replica) Drop(p kintsugi.PushID) {
	if complete, ok := r.held[p]; ok && !complete {
		r.free(p)
	}
}

// uncountable returns why a push can no longer be counted, or "".
func (r *Replica) uncountable(p kintsugi.PushID) string {
	if r.named(p) {
		return ""
	}
	c, ok := r.countable[p.Slot]
	switch {
	case !ok:
		return fmt.Sprintf("worker/%d is not a member", p.Slot)
	case p.Incarnation != c.Incarnation:
		return fmt.Sprintf("it is of incarnation %d of worker/%d, the member is incarnation %d", p.Incarnation, p.Slot, c.Incarnation)
	case p.Version < c.Oldest:
		return fmt.Sprintf("late: computed on version %d, the oldest that still counts is %d", p.Version, c.Oldest)
	case p.Version > r.applied:
		return fmt.Sprintf("computed on version %d, this shard has only reached %d", p.Version, r.applied)
	}
	return ""
}

// named reports whether the open commit, or the applied one that is not released, counts p. Such
// bytes must stay.
func (r *Replica) named(p kintsugi.PushID) bool {
	counts := func(c kintsugi.Commit) bool {
		return slices.ContainsFunc(c.Counted, func(w kintsugi.Weighted) bool { return w.Push == p })
	}
	if r.open != nil && counts(*r.open) {
		return true
	}
	return r.applied > r.released && len(r.records) > 0 && counts(r.records[len(r.records)-1])
}

// setCountable takes over the membership. Oldest applies after the open step, so pushes on older
// versions are freed only when that step is released.
func (r *Replica) setCountable(list []kintsugi.Countable) {
	clear(r.countable)
	for _, c := range list {
		if c.Oldest != kintsugi.Never {
			r.countable[c.Slot] = c
		}
	}
	r.sweep()
}

// sweep frees the pushes that can no longer be counted.
func (r *Replica) sweep() {
	var gone []kintsugi.PushID
	for p := range r.held {
		if r.uncountable(p) != "" {
			gone = append(gone, p)
		}
	}
	slices.SortFunc(gone, kintsugi.PushID.Compare)
	for _, p := range gone {
		r.free(p)
	}
}

func (r *Replica) free(p kintsugi.PushID) {
	if _, ok := r.held[p]; ok {
		delete(r.held, p)
		r.overturnOf(p)
		r.ready.Free = append(r.ready.Free, p)
	}
}

// reply gives an answer as soon as those behind have given it or, with copies, as soon as the
// replica after has the version that is due. A head that waits for the replica after says at once
// that it has applied a step itself: the conductor may hear from that replica sooner than the head
// does.
func (r *Replica) reply(m kintsugi.ReplicaMessage) {
	if r.copies() && !r.waitsForCopy(m) {
		r.say([]kintsugi.ReplicaMessage{m})
		return
	}
	r.heard(r.link.Answer(m))
	if s, ok := m.(kintsugi.Stable); ok && r.link.Waits() && !r.follows && !r.copies() {
		s.Waits = true
		r.say([]kintsugi.ReplicaMessage{s})
	}
}

func (r *Replica) say(answers []kintsugi.ReplicaMessage) {
	r.ready.Replies = append(r.ready.Replies, answers...)
}

// down passes a message to the replica after, if there is one and it needs the message.
func (r *Replica) down(m kintsugi.ChainMessage) {
	if r.link.After() && (!r.copies() || ofCopies(m)) {
		r.ready.Down = append(r.ready.Down, m)
	}
}
