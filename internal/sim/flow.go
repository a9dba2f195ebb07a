package sim

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// flow is a gradient that is pushed while it is computed, as package worker does with the layers of
// a model. Values become final from the last to the first, so a shard may have all of its frames
// before another has any.
type flow struct {
	m     *message           // encoded so far; nil: gradients are not encoded
	final kintsugi.ChunkID   // chunks from this one on are final
	sent  []kintsugi.ChunkID // by shard: its frames from this chunk on are sent
	begun bool               // some are
}

// parts is how often values become final while a gradient is computed, the end included.
const parts = 3

// flows reports whether gradients are pushed while they are computed. With a codec, they are only if
// there is at most one open push: see package worker.
func (s *session) flows() bool {
	return s.c.cfg.Flows && (!s.h.encodes() || s.c.cfg.Consistency.Pace().Credit <= 1)
}

// flow computes the gradient that id names, and pushes it meanwhile.
func (s *session) flow(id kintsugi.PushID) {
	s.opens(id, nil, 0)
	s.flowing = &flow{final: kintsugi.ChunkID(len(s.h.params))}
	for i := range s.pushes {
		s.flowing.sent = append(s.flowing.sent, s.c.shards[i].Hi)
		s.silent[i] = s.pushes[i] != nil
	}
	if s.h.encodes() {
		s.flowing.m = s.h.begin(id)
		s.grads = s.flowing.m.payloads
	} else {
		s.grads = s.h.gradient(id)
	}
	took := s.c.computeTime(s.h.slot)
	for part := range parts {
		s.c.after(s.h.proc, took*(1+time.Duration(part))/parts, func() {
			switch {
			case s.over || s.flowing == nil || s.push != id:
			case s.useless(id):
				s.giveUp()
			case part+1 < parts:
				s.flowOn(kintsugi.ChunkID(s.c.rng.IntN(int(s.flowing.final) + 1)))
			default:
				s.h.away.goesOut(id)
				s.flowOn(0)
				s.flowing = nil
				s.answered()
			}
		})
	}
}

// flowOn pushes the frames of chunks that have become final, which are those from the given one on.
func (s *session) flowOn(final kintsugi.ChunkID) {
	f := s.flowing
	for i := f.final; f.m != nil && i > final; i-- {
		s.h.encode(s.push, f.m, i-1)
	}
	f.final = final
	for i, e := range s.pushes {
		if e == nil {
			continue
		}
		r := s.c.shards[i]
		for f.sent[i] > max(r.Lo, final) {
			f.sent[i]--
			if f.begun = true; s.c.cfg.plant != quietFlow {
				s.h.away.goesOut(s.push)
			}
			s.frame(i, e, f.sent[i], f.sent[i] == r.Hi-1)
		}
	}
}

// useless reports whether a gradient is known to be too old to be counted.
func (s *session) useless(id kintsugi.PushID) bool {
	bound := s.c.cfg.Consistency.Pace().Staleness
	return bound != kintsugi.Infinite && s.newest > id.Version+kintsugi.Step(bound)
}

// giveUp drops the gradient that is computed, tells the conductor so, and reads the newest
// parameters. Heads hold the frames that were sent until they can no longer be counted.
func (s *session) giveUp() {
	id := s.push
	s.c.flows.GivenUp++
	s.dropFlow()
	s.push = kintsugi.PushID{} // a head that has all of its frames may still say so
	s.throwAway(id)
}

// dropFlow drops the gradient that is computed, if there is one: no head has all of it.
func (s *session) dropFlow() {
	f := s.flowing
	if f == nil {
		return
	}
	s.flowing = nil
	if f.begun {
		s.c.flows.InPart++
	}
	if f.m != nil && s.c.cfg.plant != keptHalf {
		s.h.settleFate(fates.Fate{Push: s.push}, false)
	}
}

// FlowResult says how often gradients were dropped while they were computed.
type FlowResult struct {
	GivenUp int // because newer parameters had made them useless
	InPart  int // after frames of them were sent, for whatever reason
}
