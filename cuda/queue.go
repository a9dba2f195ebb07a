package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// Ptr is an address in a GPU's memory; 0 means none.
type Ptr = driver.Ptr

// Queue runs work on arrays that stay on the GPU, in the order in which it is queued. Most methods
// only queue work and return at once. After the first error all methods do nothing, until Wait
// returns that error. A queue has one user at a time.
type Queue struct {
	d      *Device
	s      driver.Stream
	mark   driver.Event // recorded for After: other queues wait for it
	arrays []Ptr
	pinned [][]byte
	blas   []*BLAS
	err    error
	before error    // err at the beginning of a capture
	behind []*Queue // the queues that q waits for, since the last Wait: q takes over their errors
}

// NewQueue returns a queue. Close it before the device. Its errors are those of the device.
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

// After makes work that is queued on q from now on wait for all work that was queued on other
// before. Both queues belong to the same device. If other has an error, both do nothing until
// q.Wait has returned it, beside an error of its own.
func (q *Queue) After(other *Queue) {
	if q.err == nil {
		q.err = other.err
	} else if other.err != nil && !errors.Is(q.err, other.err) {
		q.err = errors.Join(q.err, other.err)
	}
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

// settle clears the error of q and returns it. It also clears what q has taken over of it in the
// queues that it came from.
func (q *Queue) settle() error {
	err := q.err
	q.err = nil
	for _, other := range q.behind {
		if other.err != nil && errors.Is(err, other.err) {
			other.err = nil
		}
	}
	q.behind = q.behind[:0]
	return err
}

// Program is a recording of queued work, which Replay runs in one launch: the same kernels with the
// same arguments, and copies between the same addresses. 0 means none.
type Program = driver.Program

// Capture begins to record a program: until Captured, work that is queued on q is recorded instead
// of done. So is the work of other queues that wait for q; q must wait for them before Captured. No
// array may be allocated or freed meanwhile.
func (q *Queue) Capture() {
	if q.before = q.err; q.err == nil {
		q.fail(q.d.c.Capture(q.s))
	}
}

// Captured ends Capture and returns the program. The caller owns it and releases it with Forget
// before Close. After an error nothing of the work was done, and the same work can be queued again.
// An error from before Capture is returned, and stays until Wait.
func (q *Queue) Captured() (Program, error) {
	if q.before != nil {
		return 0, q.before // the capture has not begun
	}
	p, err := q.d.c.Captured(q.s) // after an error too: the capture must end
	before := q.settle()
	if before != nil && p != 0 { // the capture may go on after an error: then the program lacks some of the work
		err = errors.Join(err, q.d.c.CloseProgram(p))
		p = 0
	}
	return p, errors.Join(before, err)
}

// Replay queues a program.
func (q *Queue) Replay(p Program) {
	if q.err == nil {
		q.fail(q.d.c.Replay(p, q.s))
	}
}

// Forget releases a program that is not running. p may be 0.
func (q *Queue) Forget(p Program) {
	if p != 0 {
		q.fail(q.d.c.CloseProgram(p))
	}
}

// Array allocates n > 0 bytes of GPU memory, with unspecified contents. The address is a multiple
// of 256, and the memory may be read up to the next multiple of 16 bytes. It lives until Free or
// Close. After an error it returns 0.
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

// Free waits for the queue and frees an array. An address that is no array of the queue, such as 0,
// is ignored.
func (q *Queue) Free(at Ptr) {
	if i := slices.Index(q.arrays, at); i >= 0 {
		q.arrays = slices.Delete(q.arrays, i, i+1)
		q.fail(q.d.c.Synchronize(q.s))
		q.fail(q.d.c.Free(at))
	}
}

// Pinned allocates n > 0 bytes of pinned host memory, for In and Out. It lives until Close. After
// an error it returns nil.
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

// mapped returns the address at which kernels reach pinned memory. Kernels may write to it; the
// host sees the values after Wait. On 64-bit Linux the GPU and the host share one address space,
// which contains all pinned memory.
func mapped(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }

// In queues a copy of pinned memory to the GPU. from must not be changed before Wait.
func (q *Queue) In(to Ptr, from []byte) {
	if q.err == nil && len(from) > 0 {
		q.fail(q.d.c.CopyIn(to, from, q.s))
	}
}

// Out queues a copy to pinned memory, which holds the values after Wait.
func (q *Queue) Out(to []byte, from Ptr) {
	if q.err == nil && len(to) > 0 {
		q.fail(q.d.c.CopyOut(to, from, q.s))
	}
}

// Zero queues the setting of n bytes to 0.
func (q *Queue) Zero(at Ptr, n int) {
	if q.err == nil && n > 0 {
		q.fail(q.d.c.Fill(at, 0, n, q.s))
	}
}

// Copy queues a copy of n bytes from one array to another.
func (q *Queue) Copy(to, from Ptr, n int) {
	if q.err == nil && n > 0 {
		q.fail(q.d.c.Copy(to, from, n, q.s))
	}
}

// Launch queues a kernel of a family on a grid of blocks; each dimension is at least 1. args is the
// kernel's parameter and has the layout of the struct in the kernel's source. Launch reads it
// before it returns.
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

// Wait waits until all queued work is done and returns the first error since the last Wait. After
// ErrLost the queue cannot be used. If there was an error, Wait also waits for the queues of After,
// since the last After may be incomplete.
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

// Close waits for the queued work and frees all memory of the queue.
func (q *Queue) Close() error {
	q.d.mu.Lock()
	lost := q.d.lost != nil
	q.d.mu.Unlock()
	if lost {
		return nil // the driver refuses every call
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
