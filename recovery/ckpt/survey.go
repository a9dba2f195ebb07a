package ckpt

import (
	"context"
	"errors"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// ChunkState says what a directory holds of a chunk, for people who look at it.
type ChunkState struct {
	Chunk  kintsugi.ChunkID
	Tensor int   // index into the tensors
	Bytes  int64 // of the records of its newest value; 0: it was never saved

	Records int // that the newest value needs: one, and an increment for each of the others

	// Line and Step are those of the newest saved value, and Before, if it is not nil, the step of the one before.
	Line   kintsugi.Line
	Step   kintsugi.Step
	Before *kintsugi.Step

	// Moved is ‖newest − before‖² of the parameters: what the chunk had to be saved for. 0 where
	// there is no value before.
	Moved float64
}

// Survey says of each chunk which values are saved, over all lines, and how far the newest is from
// the one before, which distance measures; a nil distance leaves Moved 0, and no values are read.
// Values that are damaged count as not there; skipped says so.
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

// moved returns how far two values of one chunk are apart.
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
		r := reader{fs: s.fs, dir: s.dir, layout: s.layout, place: func(ChunkInfo) (Arrays, error) { return Arrays{Params: v.to}, nil }}
		if err := r.values(ctx, []value{v.v}, func(_ located, err error) error { return err }); err != nil {
			return 0, err
		}
	}
	return s.distance(x, y)
}
