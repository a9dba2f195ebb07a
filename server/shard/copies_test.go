package shard_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// relaxed is a chain whose replicas get copies, and the conductor of one more shard, which may be
// slower.
type relaxed struct {
	t     *testing.T
	rng   *rand.Rand
	every kintsugi.Step
	links []*copyLink // by replica: from its predecessor; the head has none
	cores []*shard.Replica
	has   []map[kintsugi.Step]kintsugi.Fence // by replica: the decisions of the versions that it has had

	fence, decided kintsugi.Fence
	open           kintsugi.Step // decided and not released; 0: none
	stable         bool          // the open step is stable at this shard
	released       kintsugi.Step
	of             map[kintsugi.Step]kintsugi.Fence // the decision of each released step
	apply          *kintsugi.Commit                 // which the head is applying
	attempts       uint64
	joined         [3]int // by replica: how often it was told, since streams break no more, that it has caught up
}

type copyLink struct {
	down []sentCopy
	up   []kintsugi.ReplicaMessage
}

type sentCopy struct {
	message kintsugi.ChainMessage
	decided kintsugi.Fence // of a snapshot's version
}

func newRelaxed(t *testing.T, seed uint64) *relaxed {
	rng := rand.New(rand.NewPCG(seed, 2))
	w := &relaxed{t: t, rng: rng, every: kintsugi.Step(1 + rng.IntN(6)), fence: 1, of: make(map[kintsugi.Step]kintsugi.Fence)}
	for i := range 3 {
		r := shard.New(0, 1, 1, 1, 0)
		r.CopyEvery(w.every)
		r.Place(i > 0, i < 2)
		if i > 0 && rng.IntN(3) == 0 {
			r.Lack() // the others were there before it
		}
		w.cores, w.links, w.has = append(w.cores, r), append(w.links, nil), append(w.has, map[kintsugi.Step]kintsugi.Fence{0: 0})
	}
	w.cores[0].Handle(kintsugi.Take{Line: 1, View: 1, Fence: w.fence})
	w.perform(0)
	return w
}

// follow returns the first message of replica i to its predecessor.
func (w *relaxed) follow(i int) kintsugi.Follow {
	w.attempts++
	return w.cores[i].Follow(kintsugi.ServerID(i), w.attempts)
}

// connect connects replica i to its predecessor. Messages on the way are lost.
func (w *relaxed) connect(i int) {
	w.links[i] = nil
	plan, err := w.cores[i-1].Followed(w.follow(i))
	if err != nil {
		return // it is not whole yet
	}
	if len(plan) > 0 {
		w.t.Errorf("%+v before a copy", plan)
	}
	w.links[i] = &copyLink{}
	w.perform(i - 1)
}

func (w *relaxed) perform(i int) {
	ready := w.cores[i].Ready()
	if ready.Apply != nil {
		w.apply = ready.Apply
	}
	for _, m := range ready.Down {
		s := sentCopy{message: m}
		if x, ok := m.(kintsugi.Snapshot); ok {
			d, had := w.has[i][x.Step]
			if !had {
				w.t.Errorf("replica %d sends version %d and has never had it", i, x.Step)
			}
			s.decided = d
		}
		if w.links[i+1] != nil {
			w.links[i+1].down = append(w.links[i+1].down, s)
		}
	}
	for _, m := range ready.Replies {
		s, ok := m.(kintsugi.Stable)
		switch {
		case i > 0 && w.links[i] != nil:
			w.links[i].up = append(w.links[i].up, m)
		case i == 0 && ok && s.Step == w.open && s.Decided == w.decided:
			w.stable = true
		}
	}
}

// next makes one thing happen.
func (w *relaxed) next() {
	switch i := 1 + w.rng.IntN(2); w.rng.IntN(12) {
	case 0:
		if w.rng.IntN(4) == 0 || w.links[i] == nil {
			w.connect(i)
		}
	case 1, 2, 3:
		if l := w.links[i]; l != nil && len(l.down) > 0 {
			s := l.down[0]
			l.down = l.down[1:]
			if x, ok := s.message.(kintsugi.Snapshot); ok {
				w.has[i][x.Step] = s.decided
			}
			if !w.cores[i].Obey(s.message) {
				w.t.Errorf("%+v is not obeyed", s.message)
			}
			w.perform(i)
		}
	case 4, 5, 6:
		if l := w.links[i]; l != nil && len(l.up) > 0 {
			m := l.up[0]
			l.up = l.up[1:]
			w.cores[i-1].Heard(m)
			w.perform(i - 1)
		}
	case 7: // the next conductor decides the open step anew
		if w.open != 0 && w.rng.IntN(4) == 0 {
			w.fence++
			w.cores[0].Handle(kintsugi.Take{Line: 1, View: 1, Fence: w.fence})
			w.commit(w.open)
		}
	default:
		switch {
		case w.apply != nil:
			c := *w.apply
			w.apply = nil
			w.has[0][c.Step] = c.Decided
			w.cores[0].Applied(c.Decided, nil, 0, 0, 0)
			w.perform(0)
		case w.open == 0:
			w.commit(w.released + 1)
		case w.stable && w.rng.IntN(2) == 0:
			w.release()
		}
	}
}

func (w *relaxed) commit(step kintsugi.Step) {
	w.open, w.decided, w.stable = step, w.fence, false
	w.cores[0].Handle(kintsugi.Commit{Line: 1, Fence: w.fence, Decided: w.fence, Step: step})
	w.perform(0)
}

// release makes the other shard have the open step too.
func (w *relaxed) release() {
	w.released, w.of[w.open], w.open, w.stable = w.open, w.decided, 0, false
	w.cores[0].Handle(kintsugi.Released{Line: 1, Fence: w.fence, Step: w.released})
	w.perform(0)
}

// die ends the head and all replicas between it and replica i, which then heads the shard on a line
// that begins at a step. It returns the version to which the shard falls back.
func (w *relaxed) die(i int, begins kintsugi.Step) kintsugi.Step {
	r := w.cores[i].FallBack(2, 2)
	r.Place(false, i == 1)
	r.Handle(kintsugi.Take{Line: 2, View: 2, Fence: w.fence + 1})
	r.Handle(kintsugi.Adopt{Line: 2, Fence: w.fence + 1, Step: begins})
	ready := r.Ready()
	taken, ok := ready.Replies[len(ready.Replies)-1].(kintsugi.Taken)
	if !ok || ready.Adopt == nil || *ready.Adopt != begins || taken.Standing != kintsugi.Settled || taken.Released != begins || len(taken.Saved) != 1 {
		w.t.Errorf("it begins line 2 with %+v", ready)
		return 0
	}
	return taken.Saved[0]
}

// In whatever order messages arrive, connections break and steps are decided anew: when a head
// dies, the next replica, once it is whole, has a version that lacks fewer released steps than lie
// between two copies. That version is released, or the one at which the other shards begin. The
// same holds for the third replica if the next dies with the head, except that it may lack more.
func TestTheDeathOfAHeadCostsFewerStepsThanLieBetweenTwoCopies(t *testing.T) {
	most, steps, deaths := make(map[kintsugi.Step]kintsugi.Step), kintsugi.Step(0), 0
	for seed := range uint64(1600) {
		w := newRelaxed(t, seed)
		for range w.rng.IntN(600) {
			w.next()
		}
		steps += w.released
		heir := 1 + int(seed%2)
		if !w.cores[heir].Whole() {
			continue
		}
		begins := w.released
		if w.open != 0 && w.rng.IntN(2) == 0 && w.has[0][w.open] == w.decided {
			begins = w.open // the others have applied the open step
		}
		came := w.die(heir, begins)
		deaths++
		if came > begins || heir == 1 && w.released >= came+w.every {
			t.Errorf("seed %d: copies every %d: the line begins at %d with version %d of replica %d, released is %d", seed, w.every, begins, came, heir, w.released)
		}
		if d := w.has[heir][came]; came <= w.released && came > 0 && d != w.of[came] {
			t.Errorf("seed %d: version %d was decided under fence %d, the copy under %d", seed, came, w.of[came], d)
		}
		if heir == 1 {
			most[w.every] = max(most[w.every], w.released-min(came, w.released))
		}
		if t.Failed() {
			return
		}
	}
	for every := kintsugi.Step(1); every <= 6; every++ {
		if most[every] != every-1 {
			t.Errorf("with copies every %d steps at most %d are lost: the runs prove nothing", every, most[every])
		}
	}
	if deaths < 800 || steps < 8000 {
		t.Errorf("%d deaths, %d steps", deaths, steps)
	}
}

// A replica that came in while a step was stable at this shard and not at others has a copy of that
// step alone. It is not whole before the step is released: the step may be decided anew, and the
// head may die before the replica has a copy of the other decision.
func TestACopyOfAStepThatIsNotReleasedMakesNobodyWhole(t *testing.T) {
	head, next := shard.New(0, 1, 1, 1, 0), shard.New(0, 1, 1, 1, 0)
	for i, r := range []*shard.Replica{head, next} {
		r.CopyEvery(1)
		if i == 1 {
			r.Lack()
		}
		r.Place(i == 1, i == 0)
	}
	pass := func() {
		for _, m := range head.Ready().Down {
			next.Obey(m)
		}
		for _, m := range next.Ready().Replies {
			head.Heard(m)
		}
		for _, m := range head.Ready().Down {
			next.Obey(m)
		}
	}
	head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	head.Handle(kintsugi.Commit{Line: 1, Fence: 1, Decided: 1, Step: 1})
	head.Applied(1, nil, 0, 0, 0)
	head.Ready()
	if _, err := head.Followed(next.Follow(1, 1)); err != nil {
		t.Fatal(err)
	}
	if pass(); next.Whole() {
		t.Error("it is whole with a version that nobody has released")
	}
	head.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: 1})
	if pass(); !next.Whole() {
		t.Error("it is not whole with the version that was released")
	}
}

// When no messages are on the way any more, every replica has the newest copy that is due, and has
// been told of it once. The conductor has heard that the open step is stable.
func TestCopiesReachTheWholeChain(t *testing.T) {
	for seed := range uint64(100) {
		w := newRelaxed(t, seed)
		for range 300 {
			w.next()
		}
		for i := range w.links {
			if i > 0 {
				w.connect(i)
			}
		}
		for {
			busy := w.apply != nil
			if busy {
				c := *w.apply
				w.apply = nil
				w.has[0][c.Step] = c.Decided
				w.cores[0].Applied(c.Decided, nil, 0, 0, 0)
				w.perform(0)
			}
			for i, l := range w.links[1:] {
				for l != nil && len(l.down)+len(l.up) > 0 {
					if busy = true; len(l.down) > 0 {
						s := l.down[0]
						l.down = l.down[1:]
						if x, ok := s.message.(kintsugi.Snapshot); ok {
							w.has[i+1][x.Step] = s.decided
						}
						w.cores[i+1].Obey(s.message)
						if _, ok := s.message.(kintsugi.Joined); ok {
							w.joined[i+1]++
						}
						w.perform(i + 1)
						continue
					}
					m := l.up[0]
					l.up = l.up[1:]
					w.cores[i].Heard(m)
					w.perform(i)
				}
			}
			if w.links[2] == nil && w.cores[1].Whole() {
				w.connect(2)
				busy = true
			}
			if !busy {
				break
			}
		}
		if w.open != 0 && !w.stable {
			t.Fatalf("seed %d: the head has applied step %d, and never says so", seed, w.open)
		}
		due := w.released - w.released%w.every
		for i := 1; i < 3; i++ {
			f := w.follow(i)
			if w.joined[i] > 2 { // and of the copy of a step that was open when it connected
				t.Fatalf("seed %d: replica %d is told %d times that it has caught up", seed, i, w.joined[i])
			}
			if !w.cores[i].Whole() || f.Applied < due || f.Applied <= w.released && f.Decided != w.of[f.Applied] {
				t.Fatalf("seed %d: replica %d has version %d (%+v), due is %d", seed, i, f.Applied, f, due)
			}
		}
	}
}
