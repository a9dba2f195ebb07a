package transport

import (
	"bytes"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// narrow is loopback with the smallest windows.
func narrow(t *testing.T, h Handler) *Peer {
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(lis, h, ServeWindow(LeastWindow))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
	p, err := Dial(s.Address(), DialWindow(LeastWindow))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A window bounds what is under way, and not what can be sent: frames may be sixteen times as long,
// in both directions.
func TestFramesLongerThanTheWindowArrive(t *testing.T) {
	payload := filled(MaxPayloadBytes, 1)
	p := narrow(t, handler{push: landAll, read: func(s *ReadServer) error {
		for range 3 {
			if err := s.Send(frameOf(payload)); err != nil {
				return err
			}
		}
		return nil
	}})
	ctx := within(t, 60*time.Second)
	push := must[*PushClient](t)(p.Push(ctx))
	for range 3 {
		if err := push.Send(frameOf(payload)); err != nil {
			t.Fatal(err)
		}
		if _, err := push.Recv(); err != nil { // landAll has compared the checksum
			t.Fatal(err)
		}
	}
	read, got := must[*ReadClient](t)(p.Read(ctx)), make([]byte, len(payload))
	for range 3 {
		f, err := read.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.CopyTo(got); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("what arrived differs, %v", err)
		}
		f.Release()
	}
}

// A handler that does not read stops its own stream, and no other stream of the connection.
func TestAFullWindowHoldsUpOneStreamAlone(t *testing.T) {
	reads := make(chan struct{})
	p := narrow(t, handler{push: func(s *PushServer) error {
		f, err := s.Recv()
		if err != nil {
			return err
		}
		slow := f.Push.Slot == 1
		f.Release()
		if slow {
			<-reads
		} else if err := s.Send(kintsugi.Received{Push: f.Push}); err != nil {
			return err
		}
		return landAll(s)
	}})
	ctx := within(t, 60*time.Second)
	payload, full := filled(MaxPayloadBytes, 2), make(chan error, 1)
	slow := must[*PushClient](t)(p.Push(ctx))
	go func() {
		var err error
		for i := 0; i < 4 && err == nil; i++ {
			f := frameOf(payload)
			f.Push.Slot = 1
			err = slow.Send(f)
		}
		full <- err
	}()
	other := must[*PushClient](t)(p.Push(ctx))
	for range 20 {
		if err := other.Send(frameOf(payload)); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-full:
		t.Fatalf("4 MiB were sent to a reader that reads none of them: %v", err)
	default:
	}
	close(reads)
	if err := <-full; err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := slow.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}
