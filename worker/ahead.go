package worker

import "github.com/kintsugi-ml/kintsugi"

// ahead fetches parameters into a second buffer while a gradient is computed on the first: each version that
// is released meanwhile, or the newest where the network is slower than the run. That saves a worker the time
// of a read, and costs the traffic of versions it never computes on.
//
// Between begin and end its goroutine has the session's read streams and the buffer; nothing else
// may be on its way when it begins.
type ahead struct {
	params  []float32
	version kintsugi.Step // in params
	whole   bool          // params hold a version that was not taken
	stop    chan struct{}
	ended   chan struct{}
}

// begin begins to fetch versions newer than version.
func (a *ahead) begin(s *session, version kintsugi.Step) {
	if a.params == nil {
		a.params = make([]float32, s.cfg.Layout.Values)
	}
	a.whole = false
	a.stop, a.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(a.ended)
		a.fetch(s, version)
	}()
}

func (a *ahead) fetch(s *session, have kintsugi.Step) {
	for {
		l := s.news.look()
		if l.newest <= have {
			select {
			case <-l.changed:
				continue
			case <-a.stop:
				return
			case <-s.ctx.Done():
				return
			}
		}
		select {
		case <-a.stop: // one that has just been fetched is new enough: take says whether it is
			return
		default:
		}
		a.whole = false
		version, err := s.fetch(a.params, l.newest)
		if err != nil {
			return // the streams are broken: whoever uses them next says so
		}
		have, a.version, a.whole = version, version, true
	}
}

// end ends the fetching that begin began, and waits for it: what is on its way lands first.
func (a *ahead) end() {
	close(a.stop)
	<-a.ended
}

// take says which version params hold, if it is at least atLeast, and that it is used up: the caller puts
// another buffer in its place.
func (a *ahead) take(atLeast kintsugi.Step) (kintsugi.Step, bool) {
	if !a.whole || a.version < atLeast {
		return 0, false
	}
	a.whole = false
	return a.version, true
}
