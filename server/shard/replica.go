package shard

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/chain"
)

// MaxHeld bounds the pushes that a replica holds of one worker, unless Hold says otherwise: two that are in
// flight, and as many again for what a broken connection left behind.
const MaxHeld = 4

// Verdict is what becomes of a push when its first frame arrives.
type Verdict uint8

// The verdicts.
const (
	Accept Verdict = iota // land its bytes, then report Complete
	Have                  // its bytes are already held: acknowledge again
	Refuse                // it can never be counted; the reason says why
)

// Ready lists what the replica owes the world, to be carried out in field order.
type Ready struct {
	Overturned bool                      // what was made of the commit that was foreseen last is of no use: throw it away
	Free       []kintsugi.PushID         // drop the bytes of these pushes
	Adopt      *kintsugi.Step            // what the replica waited with is this version from now on, and may be read
	Publish    *kintsugi.Step            // this applied version may be read from now on
	Foreseen   *kintsugi.Commit          // its chunks may be made as they arrive; nothing of that may be seen before Apply. It has no fences
	Apply      *kintsugi.Commit          // start applying, with what was made of the foreseen commit; report Applied when done
	Save       *kintsugi.Step            // save this released version to the checkpoint, in the background
	Run        *Run                      // save chunks of it for the running checkpoint; report Ran
	Down       []kintsugi.ChainMessage   // to the replica after this one, if it is connected
	Replies    []kintsugi.ReplicaMessage // to the conductor; of a replica that is no head, to the one before it
	Done       *kintsugi.Done            // the run is over
}

// Replica is the control state of one replica of a shard on one line.
type Replica struct {
	id       kintsugi.ShardID
	chunks   int // of the shard; without any it gets no pushes
	line     kintsugi.Line
	view     kintsugi.ViewNumber
	promised kintsugi.Fence
	released kintsugi.Step
	applied  kintsugi.Step // here; the answers say when it is on the whole chain

	follows bool // it is no head: it obeys the one before it, and applies updates
	lacking bool // it is not whole: released steps may be missing here
	link    chain.Link
	attempt uint64 // newest of the one after in this view

	next   bool // the one after the head answers for those behind it: see NextAnswers
	at     int  // of next: place in the chain
	behind bool // of next: it was behind the next in an earlier view, and has not been told since that it has caught up

	every   kintsugi.Step  // steps between two copies for those behind, who get no updates then; 0: they get every update
	there   *copied        // of every: what the one after has; nil: it has not connected
	sent    bool           // of every: a copy is on its way to it
	dueBy   kintsugi.Fence // of every: of the decision of the newest step that is due; 0: it was not made on this line
	hasCopy bool           // of every: one has come

	standing kintsugi.Standing
	have     []kintsugi.Step // by chunk, the version that is in the running checkpoint; nil: there is none

	open     *kintsugi.Commit // accepted and not applied yet
	applying bool
	asked    bool              // somebody has taken it while it was applying, and is answered when that has ended
	records  []kintsugi.Commit // of the steps released and applied, at most two, ascending
	answer   kintsugi.Stable   // of the applied step, kept for a repetition

	optimizer func(kintsugi.Step, int) kintsugi.Optimizer // see Foresee; nil: nothing is foreseen
	foreseen  *kintsugi.Commit                            // of the next step; nil: it cannot be told yet
	want      kintsugi.Want                               // what the next commit asks for, as the conductor expects

	countable map[kintsugi.Slot]kintsugi.Countable
	change    uint64                   // newest of Members under the promised fence
	held      map[kintsugi.PushID]bool // true: complete
	most      int                      // pushes of one worker

	saving map[kintsugi.Step]bool // saves under way
	saved  *kintsugi.Saved        // the newest that went well, kept for a repetition

	running *Run // the save for the running checkpoint that is under way; nil: none

	ready Ready
}

// New returns a replica of a shard of so many chunks whose version is already readable: the
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

// Hold sets how many pushes of one worker the replica holds before it refuses more: at least the credit of
// the run's workers, or they would be refused what they may send. It is called before the first push.
func (r *Replica) Hold(most int) { r.most = most }

// Ready returns what the replica owes the world since the last call, and forgets it.
func (r *Replica) Ready() Ready {
	ready := r.ready
	r.ready = Ready{}
	return ready
}

// Released returns the newest version that may be read.
func (r *Replica) Released() kintsugi.Step { return r.released }

// Promised returns the largest fence that the replica has promised; 0: none yet.
func (r *Replica) Promised() kintsugi.Fence { return r.promised }

// Handle handles a message of a conductor. Messages of other lines and of smaller fences than the
// promised one change nothing; Handle reports false for them. The streams of the Takes that count under
// the promised fence are where the answers go: were it those of any Take, a superseded conductor that
// connects again would get the answers that the present one waits for.
func (r *Replica) Handle(msg kintsugi.ControlMessage) bool {
	switch m := msg.(type) {
	case kintsugi.Take:
		return r.take(m)
	case kintsugi.Members:
		if !r.obeys(m.Line, m.Fence) {
			return false
		}
		if m.Change < r.change { // what a broken stream had brought, read after the stream in its place: it knows nothing of who has joined since
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

// obeys reports whether a message counts: the fence must be the promised one, so that a conductor
// speaks only after it has taken the shard.
func (r *Replica) obeys(line kintsugi.Line, fence kintsugi.Fence) bool {
	return line == r.line && fence == r.promised
}

func (r *Replica) take(m kintsugi.Take) bool {
	if m.Line != r.line || m.View != r.view || m.Fence < r.promised {
		return false
	}
	if m.Fence > r.promised {
		r.promised, r.change = m.Fence, 0
	}
	r.down(m)
	if r.applying && !r.follows {
		r.asked = true
	} else {
		r.reply(r.state())
	}
	return true
}

// state is what a conductor must know.
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

// wanting returns the pushes without which the open commit cannot be applied.
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
		return // released long ago, or a step whose predecessor this shard has not seen: Taken tells the conductor
	case r.open != nil && r.open.Decided >= m.Decided:
		r.open.Fence = m.Fence // the same decision under a later fence
	case r.open == nil && r.applied == m.Step && r.answer.Step == m.Step && r.decided() >= m.Decided:
		r.answer.Fence, r.answer.Decided = m.Fence, r.decided()
		r.down(m)
		r.reply(r.answer)
		return
	default:
		// A new step, or a higher deciding fence on one that is not released: it is applied from the
		// released version, which is still whole, so nothing has to be undone.
		if r.applied == m.Step {
			r.applied--
			r.records = r.records[:len(r.records)-1]
		}
		r.open = &m
		r.setCountable(m.Countable)
	}
	r.start()
}

// start begins to apply the open commit once every push that it counts is here. One that a
// conductor before the present one has sent waits until that sends it too: where the line goes on
// after a loss, the present one may decide the step anew, and what it does until then, as to let a
// new life of a worker that the commit counts begin on the version before, would be wrong if the
// commit counted after all. For the same reason who takes a replica is not answered while that is
// applying: the answer says for good whether a commit is applied under the fences before.
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

// Applied says that the commit of Ready.Apply is applied here. decided is the fence of that commit: if another decision
// replaced it meanwhile, the step is applied again. The conductor hears of it when all replicas behind have applied
// it, too.
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
	case m.Step <= r.released: // a repetition, or the wish to save a version that is already readable
	case m.Step == r.released+1:
		if r.applied != m.Step {
			return // never stable here: the conductor finds out when it takes the shard again
		}
		r.released, r.want = m.Step, m.Want
		for _, w := range r.records[len(r.records)-1].Counted {
			r.free(w.Push)
		}
		r.sweep()
		r.ready.Publish = &m.Step
		wish := m
		wish.Save, wish.Run, wish.Want = false, nil, 0 // heads save, and foresee
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

// save asks for a save once, however often the wish arrives: two writers of one version would get into
// each other's way.
func (r *Replica) save(step kintsugi.Step) {
	switch {
	case r.saving[step]: // its end will be told to whoever is conductor then
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

// Begin says what becomes of a push whose first frame has arrived.
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
		return Accept, "" // a reconnected worker sends it again from the start
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

// Complete says that all bytes of a push have landed and are verified. It reports whether the push is
// still wanted; if not, the worker is told why.
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

// Awaited returns the version that the worker of a refused push must wait for. Where the push was late that may be
// one whose commit is here but which is not released yet.
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

// named reports whether the open or the unreleased applied commit counts p: such bytes must stay.
func (r *Replica) named(p kintsugi.PushID) bool {
	counts := func(c kintsugi.Commit) bool {
		return slices.ContainsFunc(c.Counted, func(w kintsugi.Weighted) bool { return w.Push == p })
	}
	if r.open != nil && counts(*r.open) {
		return true
	}
	return r.applied > r.released && len(r.records) > 0 && counts(r.records[len(r.records)-1])
}

// setCountable takes over the membership. Oldest is what counts after the open step, so pushes on older
// versions are swept only when that is released.
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

// reply gives an answer, as soon as those behind have given it, or with copies the one after has what is due.
func (r *Replica) reply(m kintsugi.ReplicaMessage) {
	if r.copies() && !r.waitsForCopy(m) {
		r.say([]kintsugi.ReplicaMessage{m})
		return
	}
	r.heard(r.link.Answer(m))
}

func (r *Replica) say(answers []kintsugi.ReplicaMessage) {
	r.ready.Replies = append(r.ready.Replies, answers...)
}

// down hands a message to the one after, if there is one that wants it.
func (r *Replica) down(m kintsugi.ChainMessage) {
	if r.link.After() && (!r.copies() || ofCopies(m)) {
		r.ready.Down = append(r.ready.Down, m)
	}
}
