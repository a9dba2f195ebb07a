//go:build linux

package transport

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// transfer is a stream one of whose sides is killed. It carries batches of frames; each is
// answered, or asked for, before the next.
type transfer struct {
	serves bool // the server is the side that is killed
	reads  bool // parameters are read; otherwise gradients are pushed
	shared bool // payloads are in memory that both sides have, and messages go through pipes
}

const (
	batchFrames = 4
	batchBytes  = 64 << 10 // of a frame
)

var payloadOfAll = filled(batchBytes, 1)

// batch sends the batch with a number, in shared memory if there is any.
func batch[S interface{ Send(*Frame) error }](s S, kind Kind, memory *shm.Segment, number uint32) error {
	var places Places
	for range batchFrames {
		f := frameOf(payloadOfAll)
		f.Kind = kind
		if memory != nil {
			f.Payload, f.Place, f.Push.Sequence = nil, places.Take(batchBytes), number
			copy(Put(memory, f.Place, batchBytes), payloadOfAll)
		}
		if err := s.Send(f); err != nil {
			return err
		}
	}
	return nil
}

// lendBatch sends a batch in memory of this process, new each time, if the other side can read
// that.
func lendBatch(s *ReadServer) error {
	if !s.Lends() {
		return batch(s, KindParameters, nil, 0)
	}
	m, err := NewMemory(batchFrames*batchBytes, shm.ReadOnly)
	if err != nil {
		return err
	}
	number, err := s.Lend(m)
	if err != nil {
		return err
	}
	return batch(s, KindParameters, m.Segment(), number)
}

// landBatch receives a batch and checks that it is complete, although the other side may die at any
// time.
func landBatch[S interface{ Recv() (*Frame, error) }](s S) error {
	dst := make([]byte, batchBytes)
	for range batchFrames {
		f, err := s.Recv()
		if err != nil {
			return err
		}
		err = f.CopyTo(dst)
		f.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// client transfers batches until an error, and calls each after every one.
func (x transfer) client(t *testing.T, p *Peer, each func()) error {
	var opts []Option
	if x.shared {
		p.Near()
		opts = append(opts, Sharing(batchFrames*batchBytes))
	}
	if x.reads && x.shared {
		opts = []Option{Borrowing()}
	}
	if x.reads {
		s, err := p.Read(t.Context(), opts...)
		for err == nil {
			if err = s.Send(ReadRequest{}); err == nil {
				err = landBatch(s)
			}
			each()
		}
		return err
	}
	s, err := p.Push(t.Context(), opts...)
	for err == nil {
		memory, _ := s.Memory()
		if err = batch(s, KindPush, memory, 0); err == nil {
			_, err = s.Recv()
		}
		each()
	}
	return err
}

// batchesHandler is the server's side.
func batchesHandler(each func(), ended func(error)) handler {
	return handler{
		push: func(s *PushServer) (err error) {
			defer func() { ended(err) }()
			for {
				if err := landBatch(s); err != nil {
					return err
				}
				each()
				if err := s.Send(kintsugi.Received{}); err != nil {
					return err
				}
			}
		},
		read: func(s *ReadServer) (err error) {
			defer func() { ended(err) }()
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
				each()
				if err := lendBatch(s); err != nil {
					return err
				}
			}
		},
	}
}

const victimEnv = "KINTSUGI_VICTIM"

// victim is the side that is killed, in its own process.
func victim(t *testing.T, text string) {
	var x transfer
	var address string
	if _, err := fmt.Sscanf(text, "%t %t %t %s", &x.serves, &x.reads, &x.shared, &address); err != nil {
		t.Fatal(err)
	}
	if x.serves {
		s, _ := loopback(t, batchesHandler(func() {}, func(error) {}))
		fmt.Println(s.Address())
		select {} // until it is killed
	}
	p, err := Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(x.client(t, p, func() {}))
}

// belongings are what a process has from the operating system.
type belongings struct{ segments, descriptors, goroutines int }

func mine(t *testing.T) (b belongings) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skipf("no list of mappings: %v", err)
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no list of descriptors: %v", err)
	}
	return belongings{strings.Count(string(maps), "memfd:kintsugi"), len(descriptors), runtime.NumGoroutine()}
}

// A peer that is killed in the middle of a transfer, client or server, leaves nothing behind in the
// process at the other end: no segment, no descriptor, no goroutine. What arrived is complete.
func TestPeersThatAreKilledLeaveNothing(t *testing.T) {
	if text := os.Getenv(victimEnv); text != "" {
		victim(t, text)
	}
	kills := 100
	if testing.Short() {
		kills = 16
	}
	each, ended := make(chan struct{}), make(chan error)
	s, _ := loopback(t, batchesHandler(func() { each <- struct{}{} }, func(err error) { ended <- err }))
	kill := func(i int) {
		x := transfer{serves: i&1 != 0, reads: i&2 != 0, shared: i&4 != 0}
		child := exec.Command(os.Args[0], "-test.run", "^TestPeersThatAreKilled")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%t %t %t %s", victimEnv, x.serves, x.reads, x.shared, s.Address()))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		batches := 1 + i/8%3 // before it is killed
		if x.serves {
			err = x.outlive(t, out, func() {
				if batches--; batches == 0 {
					_ = child.Process.Kill()
				}
			})
		} else {
			for range batches {
				<-each
			}
			_ = child.Process.Kill()
			for err == nil {
				select {
				case <-each:
				case err = <-ended:
				}
			}
		}
		_ = child.Wait()
		if errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%+v: what arrived was not whole: %v", x, err)
		}
	}
	for i := range 8 { // each kind once, so that everything exists that stays
		kill(i)
	}
	settle := func(enough func(belongings) bool) (b belongings) {
		for ctx := within(t, 10*time.Second); ctx.Err() == nil; {
			runtime.GC() // unmaps what nobody refers to
			if b = mine(t); enough(b) {
				break
			}
		}
		return b
	}
	before := settle(func(b belongings) bool { return b.segments == 0 })
	for i := range kills {
		kill(i)
	}
	after := settle(func(b belongings) bool {
		return b.segments <= before.segments && b.descriptors <= before.descriptors && b.goroutines <= before.goroutines
	})
	if after.segments > 0 || after.descriptors > before.descriptors || after.goroutines > before.goroutines {
		t.Errorf("after %d kills this process has %+v, before it had %+v", kills, after, before)
	}
}

// outlive is the client of a victim that serves.
func (x transfer) outlive(t *testing.T, out interface{ Read([]byte) (int, error) }, each func()) error {
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p, err := Dial(strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	return x.client(t, p, each)
}
