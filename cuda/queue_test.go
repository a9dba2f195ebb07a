//go:build gpu && cgo && linux

package cuda

import (
	"bytes"
	"testing"
)

// A capture that is given what it must not hold, by CUDA's documentation, is no program. None of it is done, and its queues can be used as
// before.
func TestACaptureThatFailsLeavesQueuesUsable(t *testing.T) {
	d := openTest(t)
	for name, give := range map[string]func(t *testing.T, q, other *Queue, at Ptr){
		"a queue that forks off is not waited for": func(_ *testing.T, q, other *Queue, at Ptr) {
			other.After(q)
			other.Zero(at, 8)
		},
		"a queue that was waited for goes on": func(_ *testing.T, q, other *Queue, at Ptr) {
			other.After(q)
			other.Zero(at, 4)
			q.After(other)
			other.Zero(at+4, 4)
		},
		"it waits for what is no part of it": func(_ *testing.T, q, other *Queue, at Ptr) {
			other.Zero(at, 4)
			q.After(other)
			q.Zero(at+4, 4)
		},
		"somebody waits for it": func(t *testing.T, q, other *Queue, at Ptr) {
			q.Zero(at, 8)
			if q.Wait() == nil {
				t.Error("there is nothing to wait for, and no error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, other := newQueue(t, d), newQueue(t, d)
			at, in, out := q.Array(16), q.Pinned(16), q.Pinned(16)
			for i := range in {
				in[i] = byte(i + 1)
			}
			q.In(at, in)
			if err := q.Wait(); err != nil {
				t.Fatal(err)
			}
			q.Capture()
			give(t, q, other, at+8)
			if p, err := q.Captured(); err == nil || p != 0 {
				t.Errorf("program %v, error %v; want an error alone", p, err)
			}
			if err := other.Wait(); err != nil {
				t.Error(err)
			}
			q.Zero(at+4, 4)
			other.After(q)
			other.Out(out, at)
			if err := other.Wait(); err != nil {
				t.Fatal(err)
			}
			want := []byte{1, 2, 3, 4, 0, 0, 0, 0, 9, 10, 11, 12, 13, 14, 15, 16}
			if name == "it waits for what is no part of it" {
				clear(want[8:12]) // that was done
			}
			if !bytes.Equal(out, want) {
				t.Errorf("memory holds %v, want %v", out, want)
			}
		})
	}
}

func newQueue(t *testing.T, d *Device) *Queue {
	t.Helper()
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}
