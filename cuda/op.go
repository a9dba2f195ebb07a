package cuda

import (
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// op is one operation: what it stages, launches and fetches. After an error its methods do nothing.
type op struct {
	d       *Device
	fetched []fetch
	err     error
}

// fetch is an array of the host that receives what a region holds in the end.
type fetch struct {
	dst  []byte
	from region
	own  bool // the region is of the segment for what is staged, so it is copied for itself
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

// bytes stages data and returns where it will be, or 0 if there is none.
func (o *op) bytes(data []byte) driver.Ptr {
	r := o.lend(&o.d.in, len(data))
	copy(r.host, data)
	return r.at
}

// floats stages x, or returns 0 for nil.
func (o *op) floats(x []float32) driver.Ptr { return o.bytes(kernels.Bytes(x)) }

// table stages structs of numbers and addresses.
func table[T any](o *op, x []T) driver.Ptr {
	var one T
	return o.bytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one))))
}

// room returns n bytes of the GPU's memory that hold anything.
func (o *op) room(n int) driver.Ptr { return o.lend(&o.d.scratch, n).at }

// zeros returns n bytes of the GPU's memory that are 0.
func (o *op) zeros(n int) driver.Ptr {
	at := o.room(n)
	if o.err == nil && n > 0 {
		o.fail(o.d.c.Fill(at, 0, n, o.d.stream))
	}
	return at
}

// result returns memory whose contents dst receives in the end, or 0 if dst is empty.
func (o *op) result(dst []byte) driver.Ptr {
	if len(dst) == 0 {
		return 0
	}
	r := o.lend(&o.d.out, len(dst))
	o.fetched = append(o.fetched, fetch{dst: dst, from: r})
	return r.at
}

func (o *op) resultFloats(x []float32) driver.Ptr { return o.result(kernels.Bytes(x)) }

// resultOf fetches structs of numbers.
func resultOf[T any](o *op, x []T) driver.Ptr {
	var one T
	return o.result(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one))))
}

// changed stages x, which kernels change in place, and fetches it in the end.
func (o *op) changed(x []byte) driver.Ptr {
	r := o.lend(&o.d.in, len(x))
	copy(r.host, x)
	if len(x) > 0 {
		o.fetched = append(o.fetched, fetch{dst: x, from: r, own: true})
	}
	return r.at
}

// flush copies what has been staged since the last time.
func (o *op) flush() {
	for i := range o.d.in.slabs {
		s := &o.d.in.slabs[i]
		if o.err == nil && s.sent < s.used {
			o.fail(o.d.c.CopyIn(s.at+driver.Ptr(s.sent), s.host[s.sent:s.used], o.d.stream))
			s.sent = s.used
		}
	}
}

// finish fetches the results and waits.
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
	// Even after an error: nothing may be under way when the memory is lent again.
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
		if err := g.reset(d.c); err != nil { // memory that cannot be freed or grown: the next operation says so
			g.slabs = nil
		}
	}
}

// changedOf stages and fetches numbers that kernels change in place.
func changedOf[T any](o *op, x []T) driver.Ptr {
	var one T
	return o.changed(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one))))
}
