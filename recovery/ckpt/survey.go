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
// read. Damaged values count as missing; skipped lists the damage.
func Survey(ctx context.Context, fsys vfs.FS, dir string, layout *kintsugi.Layout, distance func(a, b []float32) (float64, error)) (states []ChunkState, skipped []error, err error) {
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}
	saved, skipped, err := savedValues(fsys, dir, Lines{Last: ^kintsugi.Line(0)}, layout, all)
	if err != nil {
		return nil, skipped, fmt.Errorf("survey %s: %w", dir, err)
	}
	s := survey{fs: fsys, dir: dir, layout: layout, distance: distance}
	for id, values := range saved {
		state := ChunkState{Chunk: kintsugi.ChunkID(id), Tensor: layout.Chunks[id].Tensor}
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
				if state.Moved, err = s.moved(ctx, values[0], v); errors.Is(err, kintsugi.ErrCorrupt) {
					skipped, state.Before = append(skipped, err), nil
				} else if err != nil {
					return nil, skipped, fmt.Errorf("survey %s: %w", dir, err)
				}
				break
			}
		}
		states = append(states, state)
	}
	return states, skipped, nil
}

type survey struct {
	fs       vfs.FS
	dir      string
	layout   *kintsugi.Layout
	distance func(a, b []float32) (float64, error)
}

// moved returns the distance between two values of one chunk.
func (s *survey) moved(ctx context.Context, a, b value) (float64, error) {
	if s.distance == nil {
		return 0, nil
	}
	n := s.layout.Chunks[a[0].Chunk].Len()
	x, y := make([]float32, n), make([]float32, n)
	for _, v := range []struct {
		v  value
		to []float32
	}{{a, x}, {b, y}} {
		r := newReader(s.fs, s.dir, s.layout, func(ChunkInfo) (Arrays, error) { return Arrays{Params: v.to}, nil })
		if err := r.values(ctx, []value{v.v}, func(_ located, err error) error { return err }); err != nil {
			return 0, err
		}
	}
	return s.distance(x, y)
}
