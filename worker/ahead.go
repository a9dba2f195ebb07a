package worker

import "github.com/kintsugi-ml/kintsugi"

// ahead reads parameters into a second buffer while a gradient is computed on the first. It reads
// each version that is released meanwhile, or only the newest if the network is slower than the
// run. That saves the worker the time of a read, and costs the traffic for versions that it never
// computes on.
//
// Between begin and end, the goroutine of ahead owns the session's read streams and the buffer. No
// other read may be under way when it begins.
type ahead struct {
	params  []float32
	version kintsugi.Step // in params
	whole   bool          // params hold a version that was not taken
	stop    chan struct{}
	ended   chan struct{}
}

// begin starts to read versions newer than version.
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
		case <-a.stop: // the version just read may be new enough: take decides that
			return
		default:
		}
		a.whole = false
		version, err := s.fetch(a.params, l.newest)
		if err != nil {
			return // the streams are broken, and the next code to use them reports it
		}
		have, a.version, a.whole = version, version, true
	}
}

// end stops the goroutine that begin started, and waits until the read under way has ended.
func (a *ahead) end() {
	close(a.stop)
	<-a.ended
}

// take returns the version that params hold, if it is at least atLeast. The caller then takes
// params and puts another buffer in their place.
func (a *ahead) take(atLeast kintsugi.Step) (kintsugi.Step, bool) {
	if !a.whole || a.version < atLeast {
		return 0, false
	}
	a.whole = false
	return a.version, true
}
