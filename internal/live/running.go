package live

import (
	"context"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// savedChunk is a chunk in the running checkpoint of a Cluster.
type savedChunk struct {
	step   kintsugi.Step
	taken  uint64
	params []float32
	state  [][]float32
}

// fourths plans to save every fourth chunk, other chunks each time.
type fourths struct {
	every kintsugi.Step
	saved []kintsugi.Step
}

func (f *fourths) Begin(_ kintsugi.Step, saved []kintsugi.Step) { f.saved = saved }
func (f *fourths) Due(step kintsugi.Step) bool                  { return step%f.every == 0 }
func (f *fourths) Observe(kintsugi.RunEvent)                    {}

func (f *fourths) Plan(step kintsugi.Step, _ []float64) (chosen []kintsugi.ChunkID) {
	for id := range f.saved {
		if (kintsugi.Step(id)+step/f.every)%4 == 0 {
			chosen = append(chosen, kintsugi.ChunkID(id))
		}
	}
	return chosen
}

func (f *fourths) Done(step kintsugi.Step, chunks []kintsugi.ChunkID, durable bool) {
	for _, id := range chunks {
		if durable {
			f.saved[id] = max(f.saved[id], step)
		}
	}
}

func (f *fourths) Accessed(kintsugi.ChunkID, uint64) {}

func (f *fourths) Age(step kintsugi.Step, c kintsugi.ChunkID) kintsugi.Step { return step - f.saved[c] }

func (l *Cluster) planner(kintsugi.View) (conductor.Planner, error) {
	if l.cfg.RunEvery == 0 {
		return nil, nil
	}
	return &fourths{every: l.cfg.RunEvery}, nil
}

func (l *Cluster) saveRunning(_ context.Context, _ kintsugi.View, s server.Shard, chunks []kintsugi.ChunkID) (server.Ran, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes := uint64(0)
	for _, id := range chunks {
		lo, hi := l.within(&s, id)
		x := savedChunk{step: s.Step, taken: uint64(s.Step), params: slices.Clone(s.Params[lo:hi])}
		if s.Taken != nil {
			x.taken = s.Taken[id-s.Chunks.Lo]
		}
		for _, state := range s.State {
			x.state = append(x.state, slices.Clone(state[lo:hi]))
		}
		l.running[id] = x
		bytes += uint64(4 * len(x.params) * (1 + len(x.state)))
	}
	return server.Ran{Manifest: "running", Bytes: bytes}, nil
}

// loadRunning loads the saved values of a lost shard, or the initialisation.
func (l *Cluster) loadRunning(ctx context.Context, v kintsugi.View, s *server.Shard) ([]kintsugi.Step, error) {
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

// within returns the range of a chunk in the arrays of its shard.
func (l *Cluster) within(s *server.Shard, id kintsugi.ChunkID) (lo, hi int) {
	base, _ := l.cfg.Layout.Span(s.Chunks)
	x := l.cfg.Layout.Chunks[id]
	return x.Lo - base, x.Hi - base
}
