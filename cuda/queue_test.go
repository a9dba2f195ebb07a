//go:build gpu && cgo && linux

package cuda

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
)

// If a capture contains what it must not, according to CUDA's documentation, there is no program.
// None of it is done, and its queues can be used afterwards.
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
				clear(want[8:12]) // the first was done
			}
			if !bytes.Equal(out, want) {
				t.Errorf("memory holds %v, want %v", out, want)
			}
		})
	}
}

// In a program, queues wait for each other where they were told to, and nowhere else.
func TestQueuesOfAProgramWaitForEachOther(t *testing.T) {
	d := openTest(t)
	for _, waits := range []bool{true, false} {
		if !waits && emulate.OnGPU() {
			continue // both are possible
		}
		if !waits && emulate.OnPTX() {
			var err error // in a device of its own, which is lost when the race is found
			if d, err = Open(emulate.Fresh(t), 0); err != nil {
				t.Fatal(err)
			}
		}
		wrong := 0
		for _, schedule := range []string{"1", "3"} {
			t.Setenv(emulate.Schedule, schedule)
			q, other := newQueue(t, d), newQueue(t, d)
			at, to, in, out := q.Array(4), q.Array(4), q.Pinned(4), q.Pinned(4)
			q.Capture()
			other.After(q)
			other.In(at, in)
			if waits {
				q.After(other)
			}
			q.Copy(to, at, 4)
			q.After(other)
			p, err := q.Captured()
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"abcd", "efgh"} {
				copy(in, text)
				q.Replay(p)
				q.Out(out, to)
				err := q.Wait()
				if !waits && emulate.OnPTX() {
					if err == nil || !strings.Contains(err.Error(), "a race of streams") {
						t.Errorf("error %v; want that the copy and what it copies are unordered", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if string(out) != text {
					wrong++
				}
			}
			q.Forget(p)
		}
		if waits == (wrong > 0) {
			t.Errorf("the second queue waits for the first: %v; %d copies are not of what the first has brought", waits, wrong)
		}
	}
}

// A queue with an error does nothing more, nor does a queue that waits for it, until the error has
// been returned.
func TestAnErrorIsThatOfQueuesThatWaitForIt(t *testing.T) {
	d := openTest(t)
	q, other := newQueue(t, d), newQueue(t, d)
	at, in, out := q.Array(4), q.Pinned(4), q.Pinned(4)
	copy(in, "abcd")
	q.In(at, in)
	if err := q.Wait(); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	q.fail(refused)
	other.After(q)
	q.Zero(at, 1)
	other.Zero(at+1, 1)
	q.Capture()
	q.Zero(at+2, 1)
	if p, err := q.Captured(); p != 0 || !errors.Is(err, refused) {
		t.Errorf("a capture after an error: program %v, error %v; want the error", p, err)
	}
	q.After(other)
	q.Zero(at+3, 1)
	if err := q.Wait(); !errors.Is(err, refused) {
		t.Errorf("error %v, want the one that there was", err)
	}
	for _, x := range []*Queue{q, other} {
		x.Out(out, at)
		if err := x.Wait(); err != nil {
			t.Errorf("an error that has been told: %v", err)
		}
		if string(out) != "abcd" {
			t.Errorf("after an error memory holds %q, want %q", out, "abcd")
		}
		clear(out)
	}
}

// If both of two queues have an error when one waits for the other, its Wait returns both. Neither
// is left over for work that is queued later.
func TestErrorsOfTwoQueuesAreToldTogether(t *testing.T) {
	d := openTest(t)
	q, other := newQueue(t, d), newQueue(t, d)
	mine, others := errors.New("mine"), errors.New("other's")
	q.fail(mine)
	other.fail(others)
	q.After(other)
	q.After(other)
	if err := q.Wait(); !errors.Is(err, mine) || !errors.Is(err, others) || strings.Count(err.Error(), "other's") != 1 {
		t.Errorf("error %v, want both", err)
	}
	for _, x := range []*Queue{q, other} {
		if err := x.Wait(); err != nil {
			t.Errorf("an error that has been told: %v", err)
		}
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
