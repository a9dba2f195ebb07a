package sim

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// watched records what the workers of a run see.
type watched struct {
	pulls  []pulled
	pushes []pushed
}

// pulled is a read that has received a version.
type pulled struct {
	line      kintsugi.Line
	slot      kintsugi.Slot
	version   kintsugi.Step
	sum       uint64
	call, end time.Duration
}

// pushed is a push, and the step that counts it, if the worker was told of one.
type pushed struct {
	id        kintsugi.PushID
	step      kintsugi.Step
	call, end time.Duration
}

func (w *watched) pulled(s *session, version kintsugi.Step) {
	if w != nil {
		w.pulls = append(w.pulls, pulled{s.line, s.h.slot, version, digest(s.h.params), s.reading.since, s.c.now})
	}
}

func (w *watched) pushed(s *session) {
	if w != nil {
		w.pushes = append(w.pushes, pushed{id: s.push, call: s.c.now})
	}
}

// settled records the fate of the newest push of a session.
func (w *watched) settled(s *session, o outcome) {
	if w == nil || o.refused != nil {
		return
	}
	for i := len(w.pushes) - 1; i >= 0; i-- {
		if p := &w.pushes[i]; p.id == s.push {
			p.step, p.end = o.step, s.c.now
			return
		}
	}
}
