package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Published is a store in which a file appears with its whole content.
type Published interface {
	vfs.FS
	vfs.Publisher
}

// Store measures saving and restoring a shard in a store of checkpoints, such as a bucket, as
// Checkpoint does on a disk. Beside a save stands a file with the same bytes, and beside a restore
// reading it a megabyte after the other. The row "create" is the smallest request that changes
// something. What it writes is below a folder of its own in dir, and it removes that again.
func Store(ctx context.Context, in Published, dir string, cfg CheckpointConfig) ([]bench.Row, error) {
	return cfg.each(func(size int) (rows []bench.Row, err error) {
		b := &checkpointBench{ctx: ctx, fs: in, dir: path.Join(dir, fmt.Sprintf("kintsugi-bench-%d-%d", os.Getpid(), time.Now().UnixNano()))}
		defer func() {
			for _, name := range []string{"restored", "saved"} {
				err = errors.Join(err, ckpt.Erase(b.fs, path.Join(b.dir, name)))
			}
			err = errors.Join(err, b.empty("plain"), b.empty("small"))
		}()
		if err := b.build(size); err != nil {
			return nil, err
		}
		rows, err = bench.Interleave(ctx, cfg.Rounds, 0, b.stored(in))
		return rows, errors.Join(err, b.err)
	})
}

// empty removes the files of a folder.
func (b *checkpointBench) empty(folder string) error {
	names, err := b.fs.List(path.Join(b.dir, folder))
	for _, name := range names {
		err = errors.Join(err, b.fs.Remove(path.Join(b.dir, folder, name)))
	}
	return err
}

// stored returns a save, a restore, and what stands beside them. The files of the last round are
// removed outside the measured time.
func (b *checkpointBench) stored(in vfs.Publisher) []*bench.Timed {
	const small = 1 << 10
	number := 0
	fresh := func(folder string) string {
		number++
		return path.Join(b.dir, folder, strconv.Itoa(number))
	}
	clear := func(folders ...string) func() {
		return func() {
			for _, folder := range folders {
				b.note(b.empty(folder))
			}
		}
	}
	create := b.operation("create", "store", "1 KiB", clear("small"), func() error {
		return in.Publish(fresh("small"), make([]byte, small))
	})
	create.Bytes = small
	write := b.operation("write", "store", "one file", clear("plain"), func() error {
		f, err := b.fs.Create(fresh("plain"))
		if err != nil {
			return err
		}
		return b.write(f)
	})
	save := b.operation("save", kernels.Best().Name(), "whole shard", clear("saved/segment", "saved/shard"), func() error {
		_, err := b.save("saved")
		return err
	})
	read := b.operation("read", "store", "one file", nil, b.read)
	restore := b.operation("restore", kernels.Best().Name(), "whole shard", nil, b.restore)
	save.Over, restore.Over = write, read
	return []*bench.Timed{create, write, save, read, restore}
}

// read reads as many bytes as the model has, from its segment into its memory.
func (b *checkpointBench) read() error {
	f, err := b.fs.Open(b.file)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading only, so no data can be lost
	at := int64(0)
	return b.inPieces(func(piece []byte) error {
		n, err := f.ReadAt(piece, at)
		if at += int64(n); n == len(piece) && errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
}

// inPieces calls f with the memory of the model, a megabyte after the other.
func (b *checkpointBench) inPieces(f func(piece []byte) error) error {
	for _, values := range [][]float32{b.model.Params, b.model.State[0]} {
		for rest := kernels.Bytes(values); len(rest) > 0; {
			n := min(piece, len(rest))
			if err := f(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	return nil
}

// restore restores the model from its checkpoint.
func (b *checkpointBench) restore() error {
	return ckpt.Restore(b.ctx, b.fs, path.Join(b.dir, "restored"), b.saved, b.layout, b.model.Range, b.model.Place)
}
