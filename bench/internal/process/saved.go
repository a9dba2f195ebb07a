package process

import (
	"context"
	"fmt"
	"hash/crc64"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// LastSaved returns a checksum over all bits of the parameters in the newest checkpoint of a place,
// and the number of damaged places in all of its checkpoints.
func LastSaved(ctx context.Context, fs vfs.FS, at string) (bits string, damaged int, err error) {
	report, err := ckpt.Verify(ctx, fs, at, nil)
	if err != nil {
		return "", 0, err
	}
	m, _, err := ckpt.Newest(fs, at)
	if err != nil {
		return "", 0, err
	}
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		return "", 0, err
	}
	params, err := ckpt.Params(ctx, fs, at, layout, m)
	if err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("%016x", crc64.Checksum(kernels.Bytes(params), crc64.MakeTable(crc64.ECMA))), len(report.Damage), nil
}
