package bench

import (
	"context"
	"fmt"
	"hash/crc64"
	"path/filepath"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// finalBits returns the step of the newest checkpoint in a run's folder, and a checksum over all
// bits of its parameters.
func finalBits(ctx context.Context, dir string) (kintsugi.Step, string, error) {
	fs, at := vfs.OS{}, filepath.Join(dir, "checkpoints")
	m, _, err := ckpt.Newest(fs, at)
	if err != nil {
		return 0, "", err
	}
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		return 0, "", err
	}
	params := make([]float32, layout.Values)
	to := func(c ckpt.ChunkInfo) (ckpt.Arrays, error) {
		chunk := layout.Chunks[c.Chunk]
		return ckpt.Arrays{Params: params[chunk.Lo:chunk.Hi]}, nil
	}
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}
	if err := ckpt.Restore(ctx, fs, at, m, layout, all, to); err != nil {
		return 0, "", err
	}
	return m.Step, fmt.Sprintf("%016x", crc64.Checksum(kernels.Bytes(params), crc64.MakeTable(crc64.ECMA))), nil
}
