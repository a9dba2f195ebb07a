package cuda

import (
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// op is one operation: it stages arrays, launches kernels and fetches results. After an error its
// methods do nothing.
type op struct {
	d       *Device
	fetched []fetch
	err     error
}

// fetch is an array of the host that receives the contents of a region when the operation finishes.
type fetch struct {
	dst  []byte
	from region
	own  bool // the region belongs to the staging segment, so it is copied by itself
}

func (o *op) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *op) lend(g *segment, n int) region {
	if o.err != nil || n == 0 {
		return region{}
	}
	r, err := g.lend(o.d.c, n)
	o.fail(err)
	return r
}

// bytes stages data and returns its address on the GPU, or 0 if data is empty.
func (o *op) bytes(data []byte) driver.Ptr {
	r := o.lend(&o.d.in, len(data))
	copy(r.host, data)
	return r.at
}

// floats stages x and returns its address, or 0 if x is empty.
func (o *op) floats(x []float32) driver.Ptr { return o.bytes(kernels.Bytes(x)) }

// table stages structs of numbers and addresses.
func table[T any](o *op, x []T) driver.Ptr {
	var one T
	return o.bytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one))))
}

// room returns n bytes of GPU memory with unspecified contents.
func (o *op) room(n int) driver.Ptr { return o.lend(&o.d.scratch, n).at }

// zeros returns n bytes of GPU memory that are 0.
func (o *op) zeros(n int) driver.Ptr {
	at := o.room(n)
	if o.err == nil && n > 0 {
		o.fail(o.d.c.Fill(at, 0, n, o.d.stream))
	}
	return at
}

// result returns GPU memory whose contents dst receives when the operation finishes, or 0 if dst is
// empty.
func (o *op) result(dst []byte) driver.Ptr {
	if len(dst) == 0 {
		return 0
	}
	r := o.lend(&o.d.out, len(dst))
	o.fetched = append(o.fetched, fetch{dst: dst, from: r})
	return r.at
}

func (o *op) resultFloats(x []float32) driver.Ptr { return o.result(kernels.Bytes(x)) }

// resultOf is result for structs of numbers.
func resultOf[T any](o *op, x []T) driver.Ptr {
	var one T
	return o.result(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one))))
}

// changed stages x, which kernels change in place, and fetches it when the operation finishes.
func (o *op) changed(x []byte) driver.Ptr {
	r := o.lend(&o.d.in, len(x))
	copy(r.host, x)
	if len(x) > 0 {
		o.fetched = append(o.fetched, fetch{dst: x, from: r, own: true})
	}
	return r.at
}

// flush copies what has been staged since the previous flush.
func (o *op) flush() {
	for i := range o.d.in.slabs {
		s := &o.d.in.slabs[i]
		if o.err == nil && s.sent < s.used {
			o.fail(o.d.c.CopyIn(s.at+driver.Ptr(s.sent), s.host[s.sent:s.used], o.d.stream))
			s.sent = s.used
		}
	}
}

// finish fetches the results and waits for the GPU.
func (o *op) finish() {
	for i := range o.d.out.slabs {
		s := &o.d.out.slabs[i]
		if o.err == nil && s.used > 0 {
			o.fail(o.d.c.CopyOut(s.host[:s.used], s.at, o.d.stream))
		}
	}
	for _, f := range o.fetched {
		if o.err == nil && f.own {
			o.fail(o.d.c.CopyOut(f.from.host, f.from.at, o.d.stream))
		}
	}
	// Wait even after an error: no work may be running when the memory is lent again.
	o.fail(o.d.c.Synchronize(o.d.stream))
	if o.err != nil {
		return
	}
	for _, f := range o.fetched {
		copy(f.dst, f.from.host)
	}
}

func (o *op) reset() {
	d := o.d
	if d.lost != nil {
		return
	}
	for _, g := range []*segment{&d.in, &d.out, &d.scratch} {
		if err := g.reset(d.c); err != nil { // the memory cannot be freed or grown: the next operation reports it
			g.slabs = nil
		}
	}
}

// changedOf is changed for numbers.
func changedOf[T any](o *op, x []T) driver.Ptr {
	var one T
	return o.changed(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one))))
}
