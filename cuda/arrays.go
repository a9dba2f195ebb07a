package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

var _ kernels.Accelerator = (*Device)(nil)

// arrays implements kernels.Arrays. On the GPU each chunk of an array begins at a multiple of 16
// bytes; on the host there are no gaps. So copies go by runs: consecutive chunks without gaps on
// either side.
type arrays struct {
	d       *Device
	lengths []int
	at      []driver.Ptr // byte offset of each chunk in an array
	values  int
	size    int // bytes on the GPU
	runs    []run
}

// run is a part of an array that is contiguous on both sides. All fields are in bytes.
type run struct {
	host, far, bytes int
}

// NewArrays implements kernels.Accelerator.
func (d *Device) NewArrays(lengths []int) kernels.Arrays {
	a := &arrays{d: d, lengths: lengths}
	for _, n := range lengths {
		a.at = append(a.at, driver.Ptr(a.size))
		if last := len(a.runs) - 1; last >= 0 && a.runs[last].far+a.runs[last].bytes == a.size {
			a.runs[last].bytes += 4 * n
		} else {
			a.runs = append(a.runs, run{host: 4 * a.values, far: a.size, bytes: 4 * n})
		}
		a.values += n
		a.size += ceil(4*n, vector) * vector
	}
	return a
}

// holding is the memory of an array or a landing. It is freed when nothing refers to its owner any
// more, or when the device is closed.
type holding struct {
	at      driver.Ptr
	host    []byte
	landing segment
	event   driver.Event
}

// arrived waits until no copy into a landing is running. Only then may the host write or free the
// landing's memory: a driver need not wait for copies from memory that is freed.
func (h *holding) arrived(d *Device) error {
	if h.event == 0 {
		return nil
	}
	return d.c.Await(h.event)
}

// hold registers memory, which Close frees unless release has done so.
func (d *Device) hold(h *holding) {
	d.held.Lock()
	defer d.held.Unlock()
	if d.holdings == nil {
		d.holdings = make(map[*holding]struct{})
	}
	d.holdings[h] = struct{}{}
}

// release frees what h holds. It may be called at any time, also by a cleanup of the garbage
// collector.
func (d *Device) release(h *holding) {
	d.held.Lock()
	defer d.held.Unlock()
	if _, ok := d.holdings[h]; ok {
		delete(d.holdings, h)
		_ = d.free(h) // a lost device refuses it, and nothing can be done about any other error
	}
}

func (d *Device) free(h *holding) error {
	err := h.arrived(d)
	err = first(err, h.landing.free(d.c))
	if h.at != 0 {
		err = first(err, d.c.Free(h.at))
	}
	if h.host != nil {
		err = first(err, d.c.HostFree(h.host))
	}
	if h.event != 0 {
		err = first(err, d.c.CloseEvent(h.event))
	}
	return err
}

// freeAll frees everything that is still held.
func (d *Device) freeAll() error {
	d.held.Lock()
	defer d.held.Unlock()
	var err error
	for h := range d.holdings {
		err = first(err, d.free(h))
	}
	d.holdings = nil
	return err
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// array implements kernels.Array.
type array struct {
	a *arrays
	h *holding

	once   sync.Once
	values []float32 // the host's copy
	pinned error     // why there is no pinned memory for it
}

// NewArray implements kernels.Arrays.
func (a *arrays) NewArray() kernels.Array {
	x := &array{a: a, h: &holding{}}
	a.d.hold(x.h)
	runtime.AddCleanup(x, a.d.release, x.h)
	return x
}

// far returns the address of the array on the GPU. The first call allocates its memory.
func (x *array) far(o *op) driver.Ptr {
	if x.h.at == 0 && o.err == nil && x.a.size > 0 {
		at, err := x.a.d.c.Alloc(x.a.size)
		x.h.at = at
		o.fail(err)
	}
	return x.h.at
}

// Host implements kernels.Array. If there is no pinned memory, it returns ordinary memory, and Send
// and Fetch return the reason.
func (x *array) Host() []float32 {
	x.once.Do(func() {
		if x.a.values == 0 {
			return
		}
		if x.h.host, x.pinned = x.a.d.c.HostAlloc(4 * x.a.values); x.pinned != nil {
			x.values = make([]float32, x.a.values)
			return
		}
		x.values = kernels.Floats(x.h.host)
	})
	return x.values
}

// Send implements kernels.Array.
func (x *array) Send() error {
	return x.move("send an array", func(o *op, r run, far driver.Ptr) error {
		return o.d.c.CopyIn(far+driver.Ptr(r.far), x.h.host[r.host:][:r.bytes], o.d.stream)
	})
}

// Fetch implements kernels.Array.
func (x *array) Fetch() error {
	return x.move("fetch an array", func(o *op, r run, far driver.Ptr) error {
		return o.d.c.CopyOut(x.h.host[r.host:][:r.bytes], far+driver.Ptr(r.far), o.d.stream)
	})
}

func (x *array) move(what string, f func(o *op, r run, far driver.Ptr) error) error {
	x.Host()
	err := x.a.d.do(what, func(o *op) {
		o.fail(x.pinned)
		far := x.far(o)
		for _, r := range x.a.runs {
			if o.err == nil {
				o.fail(f(o, r, far))
			}
		}
	})
	runtime.KeepAlive(x)
	return err
}

// Copy implements kernels.Arrays.
func (a *arrays) Copy(dst, src kernels.Array, chunks []int) error {
	to, from := dst.(*array), src.(*array)
	err := a.d.do("copy chunks", func(o *op) {
		t, f := to.far(o), from.far(o)
		for i := 0; i < len(chunks) && o.err == nil; {
			lo, n := a.at[chunks[i]], 0
			for ; i < len(chunks) && a.at[chunks[i]] == lo+driver.Ptr(n); i++ { // adjacent chunks in one copy
				n += ceil(4*a.lengths[chunks[i]], vector) * vector
			}
			o.fail(a.d.c.Copy(t+lo, f+lo, n, a.d.stream))
		}
	})
	runtime.KeepAlive(dst)
	runtime.KeepAlive(src)
	return err
}

// Step implements kernels.Arrays. It is one launch for all chunks; chunks with other scalars and
// sparse gradients need more launches.
func (a *arrays) Step(s *kernels.ArrayStep) ([]kernels.Products, error) {
	s.Check(len(a.lengths))
	products := make([]kernels.Products, len(a.lengths))
	if len(products) == 0 {
		return products, nil
	}
	values := make([]float64, 4*len(products))
	err := a.d.do("step", func(o *op) { a.step(o, s, values) })
	runtime.KeepAlive(s)
	for i := range products {
		products[i] = productsOf(values[4*i:], flagsOf(s.WantDot, s.WantDisplacement, s.WantSaved))
	}
	return products, err
}

func (a *arrays) step(o *op, s *kernels.ArrayStep, products []float64) {
	base := a.bases(o, s)
	base.products = resultOf(o, products)
	chunks, parts := make([]chunk, len(a.lengths)), make([][]part, len(a.lengths))
	arrived := make(map[*landing]bool)
	for i := range chunks {
		chunks[i] = base.at(a.at[i])
		chunks[i].n, chunks[i].products = uint64(a.lengths[i]), base.products+driver.Ptr(32*i)
		k := &s.Chunks[i]
		for _, p := range k.Operands {
			l := p.Landing.(*landing)
			if !arrived[l] && o.err == nil {
				o.fail(o.d.c.Wait(o.d.stream, l.h.event))
			}
			arrived[l] = true
			parts[i] = append(parts[i], l.part(i, p.Weight))
		}
		switch {
		case k.Keep:
			chunks[i].given = chunks[i].params
		case s.From == nil && s.Rule == kernels.Assign:
			chunks[i].given, parts[i] = o.given(parts[i][0], a.lengths[i]), nil
		}
	}
	o.sums(chunks, parts)
	o.launchSteps(s.Rule, flagsOf(s.WantDot, s.WantDisplacement, s.WantSaved), chunks, func(i int) [12]float32 {
		return (&kernels.Step{Scale: s.Scale, Scalars: s.Chunks[i].Scalars}).Coefficients()
	})
}

// bases returns a chunk that begins where the arrays of the step begin.
func (a *arrays) bases(o *op, s *kernels.ArrayStep) chunk {
	far := func(x kernels.Array) driver.Ptr {
		if x == nil {
			return 0
		}
		return x.(*array).far(o)
	}
	c := chunk{params: far(s.Params), next: far(s.Next), update: far(s.Update), given: far(s.From), state0: far(s.State[0]), state1: far(s.State[1]), nextState0: far(s.NextState[0]), nextState1: far(s.NextState[1])}
	if s.WantDot {
		c.previous = far(s.Previous)
	}
	if s.WantSaved {
		c.saved = far(s.Saved)
	}
	return c
}

// at returns the chunk whose arrays begin by bytes behind those of c.
func (c chunk) at(by driver.Ptr) chunk {
	for _, p := range []*driver.Ptr{
		&c.params, &c.given, &c.previous, &c.saved, &c.state0, &c.state1, &c.next, &c.nextState0, &c.nextState1, &c.update,
	} {
		if *p != 0 {
			*p += by
		}
	}
	return c
}

// landing implements kernels.Landing. Its payloads lie in memory that it holds for as long as it
// holds the gradient. They are sent on a stream of their own, so that they arrive while a step is
// running.
type landing struct {
	a     *arrays
	h     *holding
	parts []part // by chunk
	err   error  // of NewLanding
}

// NewLanding implements kernels.Arrays.
func (a *arrays) NewLanding() kernels.Landing {
	l := &landing{a: a, h: &holding{landing: segment{pinned: true, apart: a.d.in.apart}}, parts: make([]part, len(a.lengths))}
	l.h.event, l.err = a.d.c.NewEvent()
	a.d.hold(l.h)
	runtime.AddCleanup(l, a.d.release, l.h)
	return l
}

// Put implements kernels.Landing.
func (l *landing) Put(chunk int, e kernels.Encoding, data []byte) error {
	n := l.a.lengths[chunk]
	kernels.CheckPayload(e, n, data)
	c, err := l.a.d.c, l.err
	l.parts[chunk] = newPart(e, n, data, func(b []byte) driver.Ptr {
		if err != nil || len(b) == 0 {
			return 0
		}
		var r region
		if r, err = l.h.landing.lend(c, len(b)); err == nil {
			copy(r.host, b)
		}
		return r.at
	})
	for i := range l.h.landing.slabs {
		if s := &l.h.landing.slabs[i]; err == nil && s.sent < s.used {
			err = c.CopyIn(s.at+driver.Ptr(s.sent), s.host[s.sent:s.used], l.a.d.arrivals)
			s.sent = s.used
		}
	}
	if err == nil {
		err = c.Record(l.h.event, l.a.d.arrivals)
	}
	runtime.KeepAlive(l)
	if err == nil {
		return nil
	}
	l.a.d.mu.Lock()
	defer l.a.d.mu.Unlock()
	return l.a.d.judge(fmt.Sprintf("land chunk %d", chunk), err)
}

// Clear implements kernels.Landing. It waits for copies, since a gradient that no step has taken
// may still be arriving.
func (l *landing) Clear() {
	clear(l.parts)
	if err := first(l.h.arrived(l.a.d), l.h.landing.reset(l.a.d.c)); err != nil { // the next Put reports it
		l.h.landing.slabs = nil
	}
}

// part returns a chunk of the gradient as an operand with the given weight.
func (l *landing) part(chunk int, weight float32) part {
	p := l.parts[chunk]
	p.weight = weight
	if p.sparse != nil {
		s := *p.sparse
		s.weight = weight
		p.sparse = &s
	}
	return p
}

// chunkSize is the distance in bytes between chunks in a table.
const chunkSize = driver.Ptr(unsafe.Sizeof(chunk{}))
