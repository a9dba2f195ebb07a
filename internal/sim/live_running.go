package sim

import (
	"context"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server"
)

// liveChunk is a chunk in the running checkpoint of a Live cluster.
type liveChunk struct {
	step   kintsugi.Step
	taken  uint64
	params []float32
	state  [][]float32
}

// saveRunning saves every fourth chunk, others each time.
func (l *Live) saveRunning(_ context.Context, _ kintsugi.View, s server.Shard) (server.RunningSave, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	saved := server.RunningSave{Manifest: "running"}
	for id := s.Chunks.Lo; id < s.Chunks.Hi; id++ {
		if (kintsugi.Step(id)+s.Step/l.cfg.RunEvery)%4 != 0 {
			continue
		}
		lo, hi := l.within(&s, id)
		x := liveChunk{step: s.Step, taken: uint64(s.Step), params: slices.Clone(s.Params[lo:hi])}
		if s.Taken != nil {
			x.taken = s.Taken[id-s.Chunks.Lo]
		}
		for _, state := range s.State {
			x.state = append(x.state, slices.Clone(state[lo:hi]))
		}
		l.running[id] = x
		saved.Chunks++
		saved.Bytes += uint64(4 * len(x.params) * (1 + len(x.state)))
	}
	return saved, nil
}

// loadRunning gives a lost shard back what was saved of it, or the initialisation.
func (l *Live) loadRunning(ctx context.Context, v kintsugi.View, s *server.Shard) ([]kintsugi.Step, error) {
	v.Restore = ""
	if err := l.load(ctx, v, s); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int(s.Chunks.Hi - s.Chunks.Lo)
	saved := make([]kintsugi.Step, n)
	s.Taken = make([]uint64, n)
	for i := range saved {
		id := s.Chunks.Lo + kintsugi.ChunkID(i)
		x := l.running[id]
		lo, hi := l.within(s, id)
		copy(s.Params[lo:hi], x.params)
		for k, state := range x.state {
			copy(s.State[k][lo:hi], state)
		}
		saved[i], s.Taken[i] = x.step, x.taken
	}
	return saved, nil
}

// within returns where a chunk lies in the arrays of its shard.
func (l *Live) within(s *server.Shard, id kintsugi.ChunkID) (lo, hi int) {
	base, _ := l.cfg.Layout.Span(s.Chunks)
	x := l.cfg.Layout.Chunks[id]
	return x.Lo - base, x.Hi - base
}
