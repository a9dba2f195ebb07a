//go:build linux

package transport

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// The payload of a frame in shared memory stays where the sender has put it, and is checked like
// one that was sent.
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

// Streams to several servers may share one memory: what is for all of them lies there once.
func TestStreamsHaveOneMemory(t *testing.T) {
	m, err := NewMemory(4096, shm.Writable)
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
	if _, err := NewMemory(MaxShared+1, shm.Writable); !errors.Is(err, shm.ErrNoSegment) {
		t.Errorf("memory in which not every place can be named: %v", err)
	}
}

// A process on another host does not have the memory and the pipes that are offered. Then payloads
// and messages are sent.
func TestAnOfferThatIsDeclinedCostsTheStreamNothing(t *testing.T) {
	_, p := loopback(t, handler{push: landAll})
	var o offers
	ctx := o.make(within(t, 10*time.Second), true, options{shared: 4096})
	if o.memory == nil || o.pipes == nil {
		t.Fatalf("nothing is offered: %v", o.why)
	}
	o.close() // as if it were on another host
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

// Memory is lent under a name that is sent once. The client finds payloads there, and cannot write
// them.
func TestPayloadsLieInMemoryThatIsLent(t *testing.T) {
	first, second := filled(1000, 1), filled(64, 2)
	answer := func(s *ReadServer) error {
		memories := make([]*Memory, 2)
		for i := range memories {
			m, err := NewMemory(4096, shm.ReadOnly)
			if err != nil {
				return err
			}
			memories[i] = m
		}
		for range 3 {
			if _, err := s.Recv(); err != nil {
				return err
			}
			for i, payload := range [][]byte{first, second, first} {
				f := frameOf(payload)
				f.Kind = KindParameters
				if s.Lends() {
					m := memories[i%2]
					number, err := s.Lend(m)
					if err != nil {
						return err
					}
					f.Payload, f.Place, f.Push.Sequence = nil, PlaceAt(1024*i), number
					copy(Put(m.Segment(), f.Place, len(payload)), payload)
				}
				if err := s.Send(f); err != nil {
					return err
				}
			}
		}
		return nil
	}
	_, p := loopback(t, handler{read: answer})
	for _, opts := range [][]Option{nil, {Borrowing()}} {
		s := must[*ReadClient](t)(p.Read(within(t, 10*time.Second), opts...))
		if s.Borrows() != (opts != nil) {
			_, why := s.Memory()
			t.Fatalf("it borrows: %v, asked with %d options: %v", s.Borrows(), len(opts), why)
		}
		for range 3 {
			if err := s.Send(ReadRequest{}); err != nil {
				t.Fatal(err)
			}
			for i, want := range [][]byte{first, second, first} {
				f, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, f.Bytes)
				if err := f.CopyTo(got); err != nil || !slices.Equal(got, want) {
					t.Errorf("payload %d arrives changed: %v", i, err)
				}
				if (f.Shared() != nil) != s.Borrows() {
					t.Errorf("payload %d lies in memory: %v, want %v", i, f.Shared() != nil, s.Borrows())
				}
				f.Release()
			}
		}
		if len(s.borrowed) > 2 {
			t.Errorf("%d memories were told of, there are 2", len(s.borrowed))
		}
	}
}

// What a server says of its memory is not trusted either.
func TestMemoryThatIsLentAsItMayNotBeIsCorrupt(t *testing.T) {
	m, err := NewMemory(4096, shm.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	told := func(number uint32, name string) *Frame {
		f := frameOf([]byte(name))
		f.Kind, f.Chunks, f.Push.Sequence = KindMemory, kintsugi.ChunkRange{}, number
		return f
	}
	lies := func(number uint32) *Frame {
		f := frameOf(filled(64, 1))
		f.Kind, f.Payload, f.Place, f.Push.Sequence = KindParameters, nil, PlaceAt(0), number
		return f
	}
	for name, c := range map[string]struct {
		frames []*Frame
		opts   []Option
		want   error
	}{
		"told to who borrows none":  {[]*Frame{told(0, m.name)}, nil, kintsugi.ErrCorrupt},
		"out of order":              {[]*Frame{told(1, m.name)}, []Option{Borrowing()}, kintsugi.ErrCorrupt},
		"told twice":                {[]*Frame{told(0, m.name), told(0, m.name)}, []Option{Borrowing()}, kintsugi.ErrCorrupt},
		"not there":                 {[]*Frame{told(0, "1.2.3.4")}, []Option{Borrowing()}, shm.ErrNoSegment},
		"used before it is told of": {[]*Frame{lies(0)}, []Option{Borrowing()}, kintsugi.ErrCorrupt},
		"not what it was":           {[]*Frame{told(0, m.name), lies(1)}, []Option{Borrowing()}, kintsugi.ErrCorrupt},
	} {
		_, p := loopback(t, handler{read: func(s *ReadServer) error {
			for _, f := range c.frames {
				if err := s.Send(f); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return nil
		}})
		ctx, cancel := context.WithCancel(within(t, 10*time.Second))
		s := must[*ReadClient](t)(p.Read(ctx, c.opts...))
		if f, err := s.Recv(); !errors.Is(err, c.want) {
			t.Errorf("memory that is %s: got %+v, %v, want %v", name, f, err, c.want)
		}
		cancel()
	}
	runtime.KeepAlive(m)
}
