package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// Ptr is an address in a GPU's memory. 0 is none.
type Ptr = driver.Ptr

// Queue does work on arrays that stay on the GPU, in the order in which it is given. Its methods
// return at once; the first error makes all that follow do nothing, until Wait returns it. A queue
// is used by one goroutine at a time.
type Queue struct {
	d      *Device
	s      driver.Stream
	mark   driver.Event // how far others wait for it
	arrays []Ptr
	pinned [][]byte
	blas   []*BLAS
	err    error
	before error    // what err was when a capture began
	behind []*Queue // that it waits for, since the last Wait: an error of theirs is its own
}

// NewQueue returns a queue. Close it before the device.
func (d *Device) NewQueue() (*Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return nil, fmt.Errorf("a queue on GPU %d: %w: %w", d.ordinal, ErrLost, d.lost)
	}
	s, err := d.c.NewStream()
	if err != nil {
		return nil, d.judge("a queue", err)
	}
	mark, err := d.c.NewEvent()
	if err != nil {
		return nil, errors.Join(d.judge("a queue", err), d.c.CloseStream(s))
	}
	return &Queue{d: d, s: s, mark: mark}, nil
}

// After makes what q is given from now on wait for all that other, of the same device, was given
// before. If other has an error, both do nothing until Wait of q has returned it.
func (q *Queue) After(other *Queue) {
	q.fail(other.err)
	if !slices.Contains(q.behind, other) {
		q.behind = append(q.behind, other)
	}
	if q.err == nil {
		q.fail(q.d.c.Record(other.mark, other.s))
	}
	if q.err == nil {
		q.fail(q.d.c.Wait(q.s, other.mark))
	}
}

// settle returns the error, which is over then, also of those that q has it from or who have it from q.
func (q *Queue) settle() error {
	err := q.err
	q.err = nil
	for _, other := range q.behind {
		if other.err == err {
			other.err = nil
		}
	}
	q.behind = q.behind[:0]
	return err
}

// Program is work that a queue was given once, and does again in one launch: the same kernels with
// the same arguments, and copies between the same places. 0 is none.
type Program = driver.Program

// Capture makes what q is given a program, in place of doing it, until Captured; so is what other
// queues are given that wait for q. Before Captured q must wait for them. Arrays must not be made
// or freed meanwhile.
func (q *Queue) Capture() {
	if q.before = q.err; q.err == nil {
		q.fail(q.d.c.Capture(q.s))
	}
}

// Captured ends Capture. The program is the caller's, who gives it back with Forget before Close.
// After an error nothing of it was done, and the queue can be given the same again; an error from
// before Capture is still there.
func (q *Queue) Captured() (Program, error) {
	if q.before != nil {
		return 0, q.before // it has not begun
	}
	p, err := q.d.c.Captured(q.s) // after an error too: it must end
	before := q.settle()
	if before != nil && p != 0 { // a refusal need not end a capture: what it holds then is not all that was given
		err = errors.Join(err, q.d.c.CloseProgram(p))
		p = 0
	}
	return p, errors.Join(before, err)
}

// Replay does a program.
func (q *Queue) Replay(p Program) {
	if q.err == nil {
		q.fail(q.d.c.Replay(p, q.s))
	}
}

// Forget gives a program back that is not under way.
func (q *Queue) Forget(p Program) {
	if p != 0 {
		q.fail(q.d.c.CloseProgram(p))
	}
}

// Array returns n > 0 bytes of the GPU's memory at a multiple of 256, which hold anything, and may
// be read to the next multiple of 16.
func (q *Queue) Array(n int) Ptr {
	if q.err != nil {
		return 0
	}
	at, err := q.d.c.Alloc(ceil(n, vector) * vector)
	if err == nil {
		q.arrays = append(q.arrays, at)
	}
	q.fail(err)
	return at
}

// Free gives an array back after all that was queued. 0 is nothing.
func (q *Queue) Free(at Ptr) {
	if i := slices.Index(q.arrays, at); i >= 0 {
		q.arrays = slices.Delete(q.arrays, i, i+1)
		q.fail(q.d.c.Synchronize(q.s))
		q.fail(q.d.c.Free(at))
	}
}

// Pinned returns n > 0 bytes of the host's memory that In and Out may name. They live until Close.
func (q *Queue) Pinned(n int) []byte {
	if q.err != nil {
		return nil
	}
	b, err := q.d.c.HostAlloc(n)
	if err == nil {
		q.pinned = append(q.pinned, b)
	}
	q.fail(err)
	return b
}

// mapped returns where kernels find pinned memory, which they may write to: it has the values after
// Wait. On Linux with 64 bits GPUs and the host have one space of addresses, and what is pinned is
// in it.
func mapped(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }

// In copies pinned memory to the GPU. It must not be changed before Wait.
func (q *Queue) In(to Ptr, from []byte) {
	if q.err == nil && len(from) > 0 {
		q.fail(q.d.c.CopyIn(to, from, q.s))
	}
}

// Out copies to pinned memory, which has the values after Wait.
func (q *Queue) Out(to []byte, from Ptr) {
	if q.err == nil && len(to) > 0 {
		q.fail(q.d.c.CopyOut(to, from, q.s))
	}
}

// Zero sets n bytes to 0.
func (q *Queue) Zero(at Ptr, n int) {
	if q.err == nil && n > 0 {
		q.fail(q.d.c.Fill(at, 0, n, q.s))
	}
}

// Copy copies n bytes from array to array.
func (q *Queue) Copy(to, from Ptr, n int) {
	if q.err == nil && n > 0 {
		q.fail(q.d.c.Copy(to, from, n, q.s))
	}
}

// Launch queues a kernel of a family on a grid of blocks; each dimension is at least 1. args is its
// parameter, with the layout of the struct in its source, and is read before Launch returns.
func Launch[T any](q *Queue, family, kernel string, blocks [3]int, threads int, args *T) {
	if q.err != nil {
		return
	}
	q.d.mu.Lock()
	f, err := q.d.function(family, kernel)
	q.d.mu.Unlock()
	if err == nil {
		err = q.d.c.Launch(f, blocks, threads, q.s, unsafe.Pointer(args), unsafe.Sizeof(*args))
	}
	q.fail(err)
}

// Wait returns when all is done, with the first error since the last Wait. After ErrLost the queue
// is of no use. After an error, of which the last After may be a part, all is done that others were
// given too.
func (q *Queue) Wait() error {
	var behind []*Queue
	if q.err != nil {
		behind = slices.Clone(q.behind)
	}
	err := errors.Join(q.settle(), q.d.c.Synchronize(q.s))
	for _, other := range behind {
		err = errors.Join(err, q.d.c.Synchronize(other.s))
	}
	if err == nil {
		return nil
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	return q.d.judge("queued work", err)
}

// Close waits and frees all memory of the queue.
func (q *Queue) Close() error {
	q.d.mu.Lock()
	lost := q.d.lost != nil
	q.d.mu.Unlock()
	if lost {
		return nil // the driver refuses everything
	}
	err := q.d.c.Synchronize(q.s)
	for _, b := range q.blas { // before the memory that they work in
		err = errors.Join(err, b.b.Close())
	}
	for _, at := range q.arrays {
		err = errors.Join(err, q.d.c.Free(at))
	}
	for _, b := range q.pinned {
		err = errors.Join(err, q.d.c.HostFree(b))
	}
	q.arrays, q.pinned, q.blas = nil, nil, nil
	if err = errors.Join(err, q.d.c.CloseEvent(q.mark), q.d.c.CloseStream(q.s)); err != nil {
		return fmt.Errorf("close a queue on GPU %d: %w", q.d.ordinal, err)
	}
	return nil
}

func (q *Queue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}
