package ckpt

import "github.com/kintsugi-ml/kintsugi/internal/vfs"

// flushBytes is how much is handed to the file system at once: large enough that system calls do not
// matter, small enough to stay in the cache between encoding and writing. A guess.
const flushBytes = 1 << 20

// output writes a file from two buffers: one is filled while the other is written, so that checksums cost no
// time where there is a second processor. A file that fits one buffer is written by its caller.
type output struct {
	f      vfs.File
	buffer []byte // the caller fills it, and calls flush when it has flushBytes or more
	size   int64  // of the file, without the buffer

	other   []byte      // free while nothing is written
	written chan error  // one answer for each of writes; nil: nothing was handed over yet
	writes  chan []byte // handed over
	pending bool        // a buffer was handed over, and its answer was not taken
}

// flush hands the buffer over, once the one before is written. After an error the file is abandoned.
func (o *output) flush() error {
	if o.written == nil {
		o.written, o.writes = make(chan error, 1), make(chan []byte, 1)
		go func() {
			for b := range o.writes {
				_, err := o.f.Write(b)
				o.written <- err
			}
		}()
	}
	if err := o.wait(); err != nil {
		return err
	}
	o.writes <- o.buffer
	o.pending = true
	o.size += int64(len(o.buffer))
	o.buffer, o.other = o.other[:0], o.buffer
	return nil
}

// wait waits for the buffer that is being written.
func (o *output) wait() error {
	if !o.pending {
		return nil
	}
	o.pending = false
	return <-o.written
}

// close writes what is left, unless there was an error before, and returns when nothing is being written any more.
func (o *output) close(err error) error {
	if last := o.wait(); err == nil {
		err = last
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
