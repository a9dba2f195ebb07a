package ckpt

import (
	"context"
	"errors"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// ChunkState says what a directory has of a chunk, for people who look at it.
type ChunkState struct {
	Chunk  kintsugi.ChunkID
	Tensor int   // index into the tensors
	Bytes  int64 // of the records of its newest value; 0: it was never saved

	Records int // number of records of the newest value: one, and one for each increment

	// Line and Step are those of the newest saved value. Before, if it is not nil, is the step of
	// the value before it.
	Line   kintsugi.Line
	Step   kintsugi.Step
	Before *kintsugi.Step

	// Moved is ‖newest − before‖² of the parameters: the change because of which the chunk was
	// saved. It is 0 if there is no value before.
	Moved float64
}

// Survey says, for each chunk, which values are saved on any line, and how far the newest value is
// from the one before, as measured by distance. If distance is nil, Moved is 0 and no values are
// read. Damaged values count as missing; skipped lists the damage. It holds up to 64 MiB of values, and
// one chunk.
func Survey(ctx context.Context, fsys vfs.FS, dir string, layout *kintsugi.Layout, distance func(a, b []float32) (float64, error)) (states []ChunkState, skipped []error, err error) {
	s := survey{fs: fsys, dir: dir, layout: layout, distance: distance, most: surveyBytes}
	if states, skipped, err = s.survey(ctx); err != nil {
		return nil, skipped, fmt.Errorf("survey %s: %w", dir, err)
	}
	return states, skipped, nil
}

type survey struct {
	fs       vfs.FS
	dir      string
	layout   *kintsugi.Layout
	distance func(a, b []float32) (float64, error)
	most     int    // bytes of values in memory, but for one chunk
	moves    []move // by chunk, ascending
}

// surveyBytes is how much a survey reads with several requests under way before it waits for the last
// of them.
const surveyBytes = 64 << 20

// move is the two newest values of a chunk, the newest first.
type move struct {
	values [2]value
	params [2][]float32 // after read
	wrong  error        // after read: what is damaged of either
}

func (m *move) chunk() kintsugi.ChunkID { return m.values[0][0].Chunk }

func (s *survey) survey(ctx context.Context) (states []ChunkState, skipped []error, err error) {
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(s.layout.Chunks))}
	saved, skipped, err := savedValues(s.fs, s.dir, Lines{Last: ^kintsugi.Line(0)}, s.layout, all)
	if err != nil {
		return nil, skipped, err
	}
	for id, values := range saved {
		state := ChunkState{Chunk: kintsugi.ChunkID(id), Tensor: s.layout.Chunks[id].Tensor}
		if len(values) > 0 {
			newest := values[0].last()
			state.Line, state.Step, state.Records = newest.line, newest.Step, len(values[0])
			for _, l := range values[0] {
				state.Bytes += l.Bytes
			}
		}
		for _, v := range values {
			if last := v.last(); last.Step != state.Step || last.line != state.Line {
				state.Before = &last.Step
				s.moves = append(s.moves, move{values: [2]value{values[0], v}})
				break
			}
		}
		states = append(states, state)
	}
	if s.distance == nil {
		return states, skipped, nil
	}
	damage, err := s.measure(ctx, states)
	return states, append(skipped, damage...), err
}

// measure sets Moved of all chunks that have moved, and takes Before from those of which a value is
// damaged.
func (s *survey) measure(ctx context.Context, states []ChunkState) (damage []error, err error) {
	for rest := s.moves; len(rest) > 0; {
		n, bytes := 0, 0
		for ; n < len(rest) && (n == 0 || bytes < s.most); n++ {
			bytes += 2 * 4 * s.layout.Chunks[rest[n].chunk()].Len()
		}
		batch := rest[:n]
		if err := s.read(ctx, batch); err != nil {
			return nil, err
		}
		for _, m := range batch {
			state := &states[m.chunk()]
			if m.wrong != nil {
				damage, state.Before = append(damage, m.wrong), nil
			} else if state.Moved, err = s.distance(m.params[0], m.params[1]); err != nil {
				return nil, err
			}
		}
		clear(batch) // its values are no longer needed
		rest = rest[n:]
	}
	return damage, nil
}

// read reads both values of some chunks.
func (s *survey) read(ctx context.Context, moves []move) error {
	of := make(map[kintsugi.ChunkID]*move, len(moves))
	for i := range moves {
		of[moves[i].chunk()] = &moves[i]
	}
	for side := range 2 {
		values := make([]value, len(moves))
		for i, m := range moves {
			values[i] = m.values[side]
		}
		r := newReader(s.fs, s.dir, s.layout, func(info ChunkInfo) (Arrays, error) {
			params := make([]float32, info.Values)
			of[info.Chunk].params[side] = params
			return Arrays{Params: params}, nil
		})
		if err := r.values(ctx, values, func(l located, err error) error {
			if !errors.Is(err, kintsugi.ErrCorrupt) {
				return err
			}
			if m := of[l.Chunk]; m.wrong == nil {
				m.wrong = err
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
