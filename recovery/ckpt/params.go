package ckpt

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Params reads the parameters of a full checkpoint, without the optimizer's state: layout.Values of
// them, in a new slice. Of several checkpoints of one model it returns the mean of each parameter,
// as in Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, UAI
// 2018. Sums are taken in float64, in the order of the checkpoints, and rounded once. That needs 12
// bytes of memory for each parameter, and one checkpoint 4.
//
// Errors are those of Restore, and kintsugi.ErrUsage if no checkpoint is given.
func Params(ctx context.Context, fsys vfs.FS, dir string, layout *kintsugi.Layout, checkpoints ...*RunManifest) ([]float32, error) {
	if len(checkpoints) == 0 {
		return nil, fmt.Errorf("%w: the parameters of no checkpoint", kintsugi.ErrUsage)
	}
	params := make([]float32, layout.Values)
	place := func(c ChunkInfo) (Arrays, error) {
		chunk := layout.Chunks[c.Chunk]
		return Arrays{Params: params[chunk.Lo:chunk.Hi]}, nil
	}
	var sums []float64
	if len(checkpoints) > 1 {
		sums = make([]float64, layout.Values)
	}
	for _, m := range checkpoints {
		if err := Restore(ctx, fsys, dir, m, layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, place); err != nil {
			return nil, err
		}
		for i := range sums {
			sums[i] += float64(params[i])
		}
	}
	for i, sum := range sums {
		params[i] = float32(sum / float64(len(checkpoints)))
	}
	return params, nil
}
