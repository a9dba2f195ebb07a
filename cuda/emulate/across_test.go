//go:build gpu && cgo && linux

package emulate_test

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// streams is a device with three streams, an array of 256 bytes, as much pinned memory, and kernels
// that write and read the whole array.
type streams struct {
	t             *testing.T
	d             driver.Context
	a, b, c       driver.Stream
	at            driver.Ptr
	host          []byte
	writes, reads driver.Function
	err           error
}

func newStreams(t *testing.T) *streams {
	t.Helper()
	t.Setenv(emulate.Kernels, "ptx")
	r := &streams{t: t}
	var err error
	if r.d, err = driver.Open(emulate.Fresh(t), 0); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*driver.Stream{&r.a, &r.b, &r.c} {
		*s, err = r.d.NewStream()
		r.must(err)
	}
	r.writes, r.reads = r.kernel("st.global.u32 [%rd5], %r1;"), r.kernel("ld.global.u32 %r3, [%rd5];")
	r.at, err = r.d.Alloc(256)
	r.must(err)
	r.host, err = r.d.HostAlloc(256)
	r.must(err)
	return r
}

func (r *streams) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// try notes an error, which any later call may return.
func (r *streams) try(err error) { r.err = errors.Join(r.err, err) }

func (r *streams) kernel(body string) driver.Function {
	r.t.Helper()
	m, err := r.d.Load([]byte(kernelOf(body) + "\x00"))
	r.must(err)
	f, err := r.d.Function(m, "k")
	r.must(err)
	return f
}

// launch runs a kernel on the array, with 64 threads of four bytes each.
func (r *streams) launch(f driver.Function, s driver.Stream) {
	args := r.at // in a variable of its own, since C must not be given memory with Go pointers
	r.try(r.d.Launch(f, [3]int{1, 1, 1}, 64, s, unsafe.Pointer(&args), 8))
}

func (r *streams) in(lo, hi int, s driver.Stream) {
	r.try(r.d.CopyIn(r.at+driver.Ptr(lo), r.host[lo:hi], s))
}

func (r *streams) out(lo, hi int, s driver.Stream) {
	r.try(r.d.CopyOut(r.host[lo:hi], r.at+driver.Ptr(lo), s))
}

func (r *streams) record(s driver.Stream) driver.Event {
	e, err := r.d.NewEvent()
	r.try(err)
	r.try(r.d.Record(e, s))
	return e
}

func (r *streams) after(s, other driver.Stream) { r.try(r.d.Wait(s, r.record(other))) }

func (r *streams) wait(s driver.Stream) { r.try(r.d.Synchronize(s)) }

func (r *streams) captured(s driver.Stream, f func()) driver.Program {
	r.try(r.d.Capture(s))
	f()
	p, err := r.d.Captured(s)
	r.try(err)
	return p
}

func (r *streams) replay(p driver.Program, s driver.Stream) { r.try(r.d.Replay(p, s)) }

const race = "a race of streams"

type streamsCase struct {
	name string
	do   func(r *streams)
	want string
}

var streamsCases = []streamsCase{
	{"one stream", func(r *streams) { r.in(0, 256, r.a); r.launch(r.writes, r.a); r.out(0, 256, r.a) }, ""},
	{"writing what another writes", func(r *streams) { r.launch(r.writes, r.a); r.in(64, 128, r.b) },
		"a copy to the device: a race of streams: on stream 2 it writes bytes 64 to 128 of array 1, 256 bytes on the device, and nothing orders that with kernel k on stream 1, which writes bytes 0 to 256 of it"},
	{"reading what another writes", func(r *streams) { r.in(0, 100, r.a); r.launch(r.reads, r.b) },
		"kernel k: a race of streams: on stream 2 it reads bytes 0 to 4 of array 1, 256 bytes on the device, and nothing orders that with a copy to the device on stream 1, which writes bytes 0 to 100 of it"},
	{"writing what another reads", func(r *streams) { r.launch(r.reads, r.a); r.in(100, 104, r.b) }, "which reads bytes 0 to 256 of it"},
	{"reading what another reads", func(r *streams) { r.launch(r.reads, r.a); r.launch(r.reads, r.b) }, ""},
	{"writing beside another", func(r *streams) { r.in(0, 7, r.a); r.in(7, 256, r.b) }, ""},
	{"a fill", func(r *streams) { r.launch(r.writes, r.a); r.try(r.d.Fill(r.at, 0, 4, r.b)) }, "a fill: a race of streams"},

	{"an event", func(r *streams) { r.launch(r.writes, r.a); r.after(r.b, r.a); r.launch(r.writes, r.b) }, ""},
	{"an event of a third", func(r *streams) { r.launch(r.writes, r.a); r.after(r.c, r.a); r.after(r.b, r.c); r.in(0, 256, r.b) }, ""},
	{"an event that comes too soon", func(r *streams) {
		e := r.record(r.a)
		r.launch(r.writes, r.a)
		r.try(r.d.Wait(r.b, e))
		r.in(0, 256, r.b)
	}, race},
	{"an event that nobody has recorded", func(r *streams) {
		e, err := r.d.NewEvent()
		r.try(err)
		r.launch(r.writes, r.a)
		r.try(r.d.Wait(r.b, e))
		r.in(0, 256, r.b)
	}, race},
	{"an event that is recorded again behind the wait", func(r *streams) {
		e := r.record(r.a)
		r.try(r.d.Wait(r.b, e))
		r.launch(r.writes, r.a)
		r.try(r.d.Record(e, r.a))
		r.in(0, 256, r.b)
	}, race},
	{"an event that is recorded again before the wait", func(r *streams) {
		e := r.record(r.b)
		r.launch(r.writes, r.a)
		r.try(r.d.Record(e, r.a))
		r.try(r.d.Wait(r.b, e))
		r.in(0, 256, r.b)
	}, ""},
	{"waiting for one of two that read", func(r *streams) {
		r.launch(r.reads, r.a)
		r.launch(r.reads, r.b)
		r.after(r.c, r.b)
		r.launch(r.writes, r.c)
	},
		"on stream 3 it writes bytes 0 to 4 of array 1, 256 bytes on the device, and nothing orders that with kernel k on stream 1, which reads"},
	{"waiting for both that read", func(r *streams) {
		r.launch(r.reads, r.a)
		r.launch(r.reads, r.b)
		r.after(r.c, r.b)
		r.after(r.c, r.a)
		r.launch(r.writes, r.c)
	}, ""},

	{"the host waits for a stream", func(r *streams) { r.launch(r.writes, r.a); r.wait(r.a); r.in(0, 256, r.b) }, ""},
	{"the host waits for an event", func(r *streams) { r.launch(r.writes, r.a); r.try(r.d.Await(r.record(r.a))); r.in(0, 256, r.b) }, ""},
	{"the host waits for an event that comes too soon", func(r *streams) { e := r.record(r.a); r.launch(r.writes, r.a); r.try(r.d.Await(e)); r.in(0, 256, r.b) }, race},
	{"the host waits for the other stream", func(r *streams) { r.launch(r.writes, r.a); r.wait(r.b); r.in(0, 256, r.b) }, race},
	{"the host waits for who waits", func(r *streams) { r.launch(r.writes, r.a); r.after(r.b, r.a); r.wait(r.b); r.in(0, 256, r.c) }, ""},
	{"the host waits afterwards", func(r *streams) { r.launch(r.writes, r.a); r.launch(r.writes, r.b); r.wait(r.a) }, race},

	{"the host changes what is copied", func(r *streams) { r.in(0, 256, r.a); r.host[9] = 1; r.wait(r.a) },
		"a copy to the device: the host has changed byte 9 of array 2, 256 bytes of pinned memory, since this was queued on stream 1 and before it was waited for"},
	{"the host changes what has been copied", func(r *streams) { r.in(0, 256, r.a); r.wait(r.a); r.host[9] = 1 }, ""},
	{"a copy changes what is copied behind it", func(r *streams) { r.launch(r.writes, r.a); r.out(0, 256, r.a); r.in(0, 256, r.a) }, ""},
	{"a copy overwrites what another copies", func(r *streams) { r.in(0, 256, r.a); r.try(r.d.CopyOut(r.host[:8], r.at, r.b)) }, race},
	{"an array is freed in use", func(r *streams) { r.launch(r.reads, r.a); r.try(r.d.Free(r.at)) }, "array 1 is freed before anybody has waited for kernel k on stream 1"},
	{"an array is freed after its use", func(r *streams) { r.launch(r.reads, r.a); r.wait(r.a); r.try(r.d.Free(r.at)) }, ""},
	{"pinned memory is freed in use", func(r *streams) { r.in(0, 4, r.a); r.try(r.d.HostFree(r.host)) }, "array 2 is freed before anybody has waited for a copy to the device on stream 1"},

	{"a program behind what its stream was given", func(r *streams) {
		p := r.captured(r.a, func() { r.launch(r.writes, r.a) })
		r.in(0, 256, r.a)
		r.replay(p, r.a)
		r.replay(p, r.a)
		r.out(0, 256, r.a)
	}, ""},
	{"a program beside a stream", func(r *streams) {
		p := r.captured(r.a, func() { r.launch(r.writes, r.a) })
		r.replay(p, r.a)
		r.in(0, 256, r.b)
	}, "nothing orders that with kernel k on stream 1 in program 1, which writes bytes 0 to 256 of it"},
	{"a program on two streams", func(r *streams) { // the driver orders its launches
		p := r.captured(r.a, func() { r.launch(r.writes, r.a) })
		r.replay(p, r.a)
		r.replay(p, r.b)
	}, ""},
	{"two programs on two streams", func(r *streams) {
		p, q := r.captured(r.a, func() { r.launch(r.writes, r.a) }), r.captured(r.a, func() { r.launch(r.writes, r.a) })
		r.replay(p, r.a)
		r.replay(q, r.b)
	}, "on stream 1 in program 2 it writes bytes 0 to 4 of array 1, 256 bytes on the device, and nothing orders that with kernel k on stream 1 in program 1"},
	{"streams of a program that wait", func(r *streams) {
		p := r.captured(r.a, func() {
			r.launch(r.writes, r.a)
			r.after(r.b, r.a)
			r.launch(r.writes, r.b)
			r.after(r.a, r.b)
			r.launch(r.writes, r.a)
		})
		r.replay(p, r.c)
		r.replay(p, r.c)
	}, ""},
	{"streams of a program that wait too late", func(r *streams) {
		p := r.captured(r.a, func() {
			r.after(r.b, r.a)
			r.launch(r.writes, r.b)
			r.launch(r.reads, r.a)
			r.after(r.a, r.b)
		})
		r.replay(p, r.a)
	}, "on stream 2 in program 1"},
	{"a stream that a program is captured from, before it", func(r *streams) { // what was queued before is not part of the program, and not waited for
		r.launch(r.writes, r.b)
		p := r.captured(r.a, func() {
			r.after(r.b, r.a)
			r.launch(r.writes, r.b)
			r.after(r.a, r.b)
		})
		r.replay(p, r.a)
	}, "on stream 2 it writes bytes 0 to 4 of array 1, 256 bytes on the device, and nothing orders that with kernel k on stream 2 in program 1, which writes bytes 0 to 256 of it"},
	{"the host changes what a program copies, between its launches", func(r *streams) {
		p := r.captured(r.a, func() { r.in(0, 256, r.a) })
		for i := range 3 {
			r.host[0] = byte(i)
			r.replay(p, r.a)
			r.wait(r.a)
		}
	}, ""},
	{"the host changes what a program copies", func(r *streams) {
		p := r.captured(r.a, func() { r.in(0, 256, r.a) })
		r.replay(p, r.a)
		r.host[0] = 1
	}, "the host has changed byte 0 of array 2"},
}

// Two works that touch the same bytes, at least one of them writing, are an error that names both
// if nothing orders them. No other two are.
func TestWhatStreamsMustNotDoIsSaid(t *testing.T) {
	for _, c := range streamsCases {
		t.Run(c.name, func(t *testing.T) {
			err := c.run(t)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the emulation says %v; want %q", err, c.want)
			}
			// If works are done at once, as they are queued, their order is different, and the same
			// pairs are unordered. The host's work comes last.
			t.Setenv(emulate.Schedule, "1")
			err = c.run(t)
			if races := strings.Contains(c.want, race); err == nil && races || err != nil && (c.want == "" || races && !strings.Contains(err.Error(), race)) {
				t.Errorf("with work done at once the emulation says %v; want %q, between whatever two", err, c.want)
			}
		})
	}
}

// run does what the case says, and returns the error.
func (c streamsCase) run(t *testing.T) error {
	t.Helper()
	r := newStreams(t)
	c.do(r)
	for _, s := range []driver.Stream{r.a, r.b, r.c} {
		r.wait(s)
	}
	return r.err
}
