//go:build linux

package transport

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// The payload of a frame in shared memory is where the sender has put it, and is checked like one that was sent.
func TestAPayloadInSharedMemoryArrives(t *testing.T) {
	got := make(chan []byte, 2)
	_, p := loopback(t, handler{push: func(s *PushServer) error {
		for {
			f, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if f.Shared() == nil {
				return errors.New("the payload has travelled")
			}
			dst := make([]byte, f.Bytes)
			if err := errors.Join(f.Check(), f.CopyTo(dst)); err != nil {
				return err
			}
			got <- dst
			f.Release()
		}
	}})
	s := must[*PushClient](t)(p.Push(within(t, 10*time.Second), Sharing(4096)))
	memory, why := s.Memory()
	if memory == nil || why != nil {
		t.Fatalf("a process does not share memory with itself: %v", why)
	}
	var places Places
	for i, n := range []int{1000, 64} {
		payload := filled(n, uint64(i))
		f := frameOf(payload)
		f.Payload, f.Place = nil, places.Take(n)
		copy(Put(memory, f.Place, n), payload)
		if err := s.Send(f); err != nil {
			t.Fatal(err)
		}
		select {
		case b := <-got:
			if !slices.Equal(b, payload) {
				t.Errorf("payload %d arrives changed", i)
			}
		case <-s.Context().Done():
			_, err := s.Recv()
			t.Fatal(err)
		}
	}
	if places.Bytes() != 1024+64 {
		t.Errorf("payloads of 1000 and 64 bytes take %d", places.Bytes())
	}
	if Put(memory, places.Take(4096), 4096) != nil {
		t.Error("a payload fits that ends behind the memory")
	}
}

// What a frame says of memory is not trusted.
func TestAPlaceOutsideTheMemoryOfAStreamIsCorrupt(t *testing.T) {
	last := PlaceAt(4096)
	fits := PlaceAt(4096 - 64)
	for _, c := range []struct {
		name   string
		shared int
		place  uint32
		change func([]byte)
		want   error
	}{
		{"in memory that there is", 4096, fits, nil, nil},
		{"in the header of the memory", 4096, 1, nil, kintsugi.ErrCorrupt},
		{"behind the memory", 4096, last, nil, kintsugi.ErrCorrupt},
		{"partly behind it", 4096, fits + 1, nil, kintsugi.ErrCorrupt},
		{"far behind it", 4096, 1<<32 - 1, nil, kintsugi.ErrCorrupt},
		{"in no memory", 0, fits, nil, kintsugi.ErrCorrupt},
		{"changed since it was summed", 4096, fits, func(b []byte) { b[3] ^= 1 }, kintsugi.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p := loopback(t, handler{push: landAll})
			s := must[*PushClient](t)(p.Push(within(t, 10*time.Second), Sharing(c.shared)))
			payload := filled(64, 1)
			f := frameOf(payload)
			f.Payload, f.Place = nil, c.place
			if memory, _ := s.Memory(); memory != nil {
				if b := Put(memory, c.place, 64); b != nil {
					copy(b, payload)
					if c.change != nil {
						c.change(b)
					}
				}
			}
			if err := s.Send(f); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// Streams to several servers may have one memory: what is for all of them lies there once.
func TestStreamsHaveOneMemory(t *testing.T) {
	m, err := NewMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	payload := filled(64, 1)
	var streams []*PushClient
	for range 2 {
		_, p := loopback(t, handler{push: landAll})
		streams = append(streams, must[*PushClient](t)(p.Push(within(t, 10*time.Second), Offering(m))))
	}
	m.Close()
	f := frameOf(payload)
	f.Payload, f.Place = nil, PlaceAt(4)
	copy(Put(m.Segment(), f.Place, len(payload)), payload)
	for _, s := range streams {
		if err := s.Send(f); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Error(err)
		}
	}
	if _, err := NewMemory(MaxShared + 1); !errors.Is(err, shm.ErrNoSegment) {
		t.Errorf("memory in which not every place can be named: %v", err)
	}
}

// Nobody on another host has the memory and the pipes that are offered; then payloads and messages travel.
func TestAnOfferThatIsDeclinedCostsTheStreamNothing(t *testing.T) {
	_, p := loopback(t, handler{push: landAll})
	var o offers
	ctx := o.make(within(t, 10*time.Second), true, options{shared: 4096})
	if o.memory == nil || o.pipes == nil {
		t.Fatalf("nothing is offered: %v", o.why)
	}
	o.close() // as if it were elsewhere
	s := must[*PushClient](t)(p.Push(ctx))
	if err := o.answer(s.raw.(grpc.ClientStream)); err != nil || !errors.Is(o.why, shm.ErrNoSegment) || o.memory != nil || o.pipes != nil {
		t.Errorf("the answer is %v, %v; want a reason that is %v", o.why, err, shm.ErrNoSegment)
	}
	if err := s.Send(frameOf(filled(1000, 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Error(err)
	}
}
