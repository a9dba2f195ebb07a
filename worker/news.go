package worker

import (
	"fmt"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// news is what a session has heard from the conductor. The goroutine that listens writes it. The
// goroutine that computes reads it and waits for changes.
type news struct {
	mu       sync.Mutex
	newest   kintsugi.Step            // greatest version known to be released
	open     map[kintsugi.PushID]bool // pushes whose tickets are sent and whose fate is unknown
	fates    []fates.Fate             // fates that settled has not returned yet
	void     []kintsugi.PushID        // pushes that were refused although their version was the newest, and that settled has not returned yet
	hopeless *kintsugi.Refused        // one of these refusals
	changed  chan struct{}            // closed, and replaced, when any of the above changes

	// While a gradient may be given up: the version from which on it is useless, and the function
	// that ends it.
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

// released notes that a step is released. Among the pushes that it counts, those of other workers
// are ignored.
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
		delete(n.open, r.Push) // not a fate: the next session may send it again
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

// settled returns the fates since the last call, and the pushes that were refused although their
// version was the newest.
func (n *news) settled() (f []fates.Fate, void []kintsugi.PushID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, void = n.fates, n.void
	n.fates, n.void = nil, nil
	return f, void
}

// reached notes that a version is known to be released, whoever said so.
func (n *news) reached(step kintsugi.Step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reach(step)
}

// reach notes a released version, wakes all waiters, and gives up the current gradient if the
// version makes it useless.
func (n *news) reach(step kintsugi.Step) {
	n.newest = max(n.newest, step)
	close(n.changed)
	n.changed = make(chan struct{})
	if n.giveUp != nil && n.newest >= n.useless {
		n.giveUp()
		n.giveUp = nil
	}
}

// interrupt arranges that giveUp is called, once, when a version of at least useless is known to be
// released. If it is known already, giveUp is called at once. A nil giveUp cancels this.
func (n *news) interrupt(useless kintsugi.Step, giveUp func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if giveUp != nil && n.newest >= useless {
		giveUp()
		giveUp = nil
	}
	n.useless, n.giveUp = useless, giveUp
}

// look is the state of news at one moment. It is up to date until changed is closed.
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

// await waits until fewer than credit pushes are open, and returns the news of that moment. If a
// push was refused although its version was the newest, await returns an error: another try on this
// version would be refused too.
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

// listen receives the conductor's messages until the stream ends. It never waits for the goroutine
// that computes. Otherwise the releases of a fast run would pile up behind one slow gradient until
// the conductor closes the stream.
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
