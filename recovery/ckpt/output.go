package ckpt

import "github.com/kintsugi-ml/kintsugi/internal/vfs"

// flushBytes is how many bytes are handed to the file system at once: enough that system calls do
// not matter, and few enough to stay in the cache between encoding and writing. A guess.
const flushBytes = 1 << 20

// outputs is the number of buffers of an output: one is filled, one is written and one waits, so
// that neither side stops if the other is late.
const outputs = 3

// output writes a file from several buffers: one is filled while another is written. So checksums
// cost no time if there is a second processor. A file that fits into one buffer is written by the
// caller itself.
type output struct {
	f      vfs.File
	buffer []byte // the caller fills it, and calls flush when it has flushBytes or more
	size   int64  // of the file, without the buffer

	spare  [][]byte     // buffers that were not used yet
	writes chan []byte  // to be written; nil: nothing was handed over yet
	done   chan written // one for each of writes
	behind int          // buffers that were handed over and may not be written yet
}

// written is a buffer that is free again, with the result of its write.
type written struct {
	buffer []byte
	err    error
}

// flush hands the buffer over to be written. An error is that of an earlier buffer; the file is
// then abandoned.
func (o *output) flush() error {
	if o.writes == nil {
		o.writes, o.done = make(chan []byte, outputs), make(chan written, outputs)
		go func() {
			var failed error
			for b := range o.writes {
				if failed == nil {
					_, failed = o.f.Write(b)
				}
				o.done <- written{b[:0], failed}
			}
		}()
	}
	o.size += int64(len(o.buffer))
	o.writes <- o.buffer
	o.behind++
	if n := len(o.spare); n > 0 {
		o.buffer, o.spare = o.spare[n-1][:0], o.spare[:n-1]
		return nil
	}
	w := <-o.done
	o.behind--
	o.buffer = w.buffer
	return w.err
}

// close writes what is left, unless err is set. It returns when nothing is being written any more.
func (o *output) close(err error) error {
	for ; o.behind > 0; o.behind-- {
		if w := <-o.done; err == nil {
			err = w.err
		}
	}
	if o.writes != nil {
		close(o.writes)
	}
	if err == nil {
		_, err = o.f.Write(o.buffer)
		o.size += int64(len(o.buffer))
	}
	return err
}
