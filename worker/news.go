package worker

import (
	"fmt"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// news is what a session has heard from the conductor. The goroutine that listens writes it, the one that
// computes reads it and waits for it to change.
type news struct {
	mu       sync.Mutex
	newest   kintsugi.Step            // greatest version known to be released
	open     map[kintsugi.PushID]bool // pushes whose tickets are out
	fates    []fates.Fate             // of pushes whose tickets were out, not yet taken
	void     []kintsugi.PushID        // pushes that were refused although there was nothing newer, not yet taken
	hopeless *kintsugi.Refused        // one of them
	changed  chan struct{}            // closed, and replaced, when any of the above changes

	// While a gradient is computed that may be given up: how new a version makes it useless, and how to say so.
	useless kintsugi.Step
	giveUp  func()
}

func newNews() *news {
	return &news{open: make(map[kintsugi.PushID]bool), changed: make(chan struct{})}
}

// expect notes that the ticket of id is about to be sent.
func (n *news) expect(id kintsugi.PushID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[id] = true
}

// isOpen reports whether the fate of a push is not known yet.
func (n *news) isOpen(id kintsugi.PushID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[id]
}

// released notes a release. Of the pushes that it counts only the own ones matter.
func (n *news) released(step kintsugi.Step, counted []kintsugi.PushID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range counted {
		n.close(id, true)
	}
	n.reach(step)
}

// refused notes that a push will never be counted.
func (n *news) refused(r kintsugi.Refused) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[r.Push] && r.Step <= r.Push.Version {
		n.hopeless = &r
		n.void = append(n.void, r.Push)
		delete(n.open, r.Push) // no fate: the next session may send it again
	}
	n.close(r.Push, false)
	n.reach(r.Step)
}

func (n *news) close(id kintsugi.PushID, counted bool) {
	if n.open[id] {
		delete(n.open, id)
		n.fates = append(n.fates, fates.Fate{Push: id, Counted: counted})
	}
}

// settled returns what became of pushes since the last call, and which were refused although there was nothing newer.
func (n *news) settled() (f []fates.Fate, void []kintsugi.PushID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, void = n.fates, n.void
	n.fates, n.void = nil, nil
	return f, void
}

// reached notes that a version is known to be released, from whoever said so.
func (n *news) reached(step kintsugi.Step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reach(step)
}

// reach notes that a version is released, wakes who waits, and gives up a gradient that it makes useless.
func (n *news) reach(step kintsugi.Step) {
	n.newest = max(n.newest, step)
	close(n.changed)
	n.changed = make(chan struct{})
	if n.giveUp != nil && n.newest >= n.useless {
		n.giveUp()
		n.giveUp = nil
	}
}

// interrupt makes giveUp be called, once, when a version of at least useless is known to be released; at
// once if it is. A nil giveUp ends that.
func (n *news) interrupt(useless kintsugi.Step, giveUp func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if giveUp != nil && n.newest >= useless {
		giveUp()
		giveUp = nil
	}
	n.useless, n.giveUp = useless, giveUp
}

// look is what news say at one moment. It holds until changed is closed.
type look struct {
	newest   kintsugi.Step
	open     int
	hopeless *kintsugi.Refused
	changed  <-chan struct{}
}

func (n *news) look() look {
	n.mu.Lock()
	defer n.mu.Unlock()
	return look{newest: n.newest, open: len(n.open), hopeless: n.hopeless, changed: n.changed}
}

// await waits until fewer than credit pushes are open, and returns what it sees then. A push that was refused
// although nothing is newer ends the wait with an error: to go on as before would end the same way.
func (s *session) await(credit int) (look, error) {
	for {
		l := s.news.look()
		switch {
		case l.hopeless != nil:
			return l, refusal(*l.hopeless)
		case l.open < credit:
			return l, nil
		}
		select {
		case <-l.changed:
		case <-s.ctx.Done():
			return l, s.cause(s.ctx.Err())
		}
	}
}

// listen takes the conductor's messages until the stream ends. It never waits for the goroutine that
// computes: the releases of a fast run would pile up behind one slow gradient until the conductor gives
// the stream up.
func (s *session) listen() {
	for {
		m, err := s.work.Recv()
		if err != nil {
			s.cancel(fmt.Errorf("conductor: %w", err))
			return
		}
		switch m := m.(type) {
		case kintsugi.Released:
			s.news.released(m.Step, m.Counted)
		case kintsugi.Refused:
			s.news.refused(m)
		case kintsugi.Done:
			s.cancel(errDone)
			return
		}
	}
}
