package server_test

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// one is a server that holds all shards, with clients that do what no worker of ours would.
type one struct {
	testing.TB
	ctx    context.Context
	layout *kintsugi.Layout
	peer   *transport.Peer
	server *server.Server
	frames []kintsugi.ChunkRange
}

func start(t testing.TB) *one { return startWith(t, kintsugi.RuleSGD, 200_000) }

// startWith is start with a step rule and a number of values.
func startWith(t testing.TB, rule kintsugi.Rule, values int) *one {
	return startOutside(t, rule, values, nil)
}

// startOutside is startWith with memory outside the process.
func startOutside(t testing.TB, rule kintsugi.Rule, values int, outside *server.Outside) *one {
	return startChanged(t, values, func(cfg *server.Config) { cfg.Schedule.Rule, cfg.Outside = rule, outside })
}

// startChanged is start with a number of values and a configuration that change changes.
func startChanged(t testing.TB, values int, change func(*server.Config)) *one {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{values}}})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{
		Incarnation: 1, Layout: l, Device: kernels.Host, Slots: 2, Consistency: agg.Config{Quota: 1, Lead: kintsugi.Infinite}, Steps: 1 << 30,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 1}, StartGrace: time.Minute, LeaveGrace: time.Minute,
		Load:      func(context.Context, kintsugi.View, *server.Shard) error { return nil },
		NextFence: func(_ context.Context, v kintsugi.View) (kintsugi.Fence, error) { return v.Fence + 1, nil },
	}
	change(&cfg)
	s := server.New(cfg)
	patience := 20 * time.Second
	if _, fuzzes := t.(*testing.F); fuzzes {
		patience = time.Hour
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	views := make(chan kintsugi.View, 1)
	views <- kintsugi.View{Number: 1, Line: 1, Fence: 1, Chains: [][]kintsugi.ServerID{{0}},
		Servers: []kintsugi.Member{{Incarnation: 1, Address: lis.Addr().String()}}}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, lis, views) }()
	p, err := transport.Dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return &one{TB: t, ctx: ctx, layout: l, peer: p, server: s, frames: transport.Frames(l, l.Split(1)[0])}
}

func ok[S any](t *one) func(S, error) S {
	return func(s S, err error) S {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func (t *one) push() *transport.PushClient { return ok[*transport.PushClient](t)(t.peer.Push(t.ctx)) }

// join makes an incarnation of a slot a member.
func (t *one) join(slot kintsugi.Slot, inc kintsugi.Incarnation) *transport.WorkClient {
	t.Helper()
	w := ok[*transport.WorkClient](t)(t.peer.Work(t.ctx))
	err := w.Send(kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Model: t.layout.Fingerprint(), Line: 1, Slot: slot, Incarnation: inc})
	if err != nil {
		t.Fatal(err)
	}
	if m, isAdmitted := ok[kintsugi.ConductorMessage](t)(w.Recv()).(kintsugi.Admitted); !isAdmitted {
		t.Fatalf("hello was answered with %+v", m)
	}
	return w
}

func id(slot kintsugi.Slot) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1}
}

// send sends some frames of a gradient whose values are all v.
func (t *one) send(s *transport.PushClient, p kintsugi.PushID, v float32, frames ...kintsugi.ChunkRange) {
	t.Helper()
	for _, r := range frames {
		lo, hi := t.layout.Span(r)
		values := make([]float32, hi-lo)
		for i := range values {
			values[i] = v
		}
		b := kernels.Bytes(values)
		h := transport.Header{Kind: transport.KindPush, Push: p, Chunks: r, Bytes: uint32(len(b)), CRC: transport.Checksum(b)}
		if err := s.Send(&transport.Frame{Header: h, Payload: b}); err != nil {
			_, err = s.Recv()
			t.Fatal(err)
		}
	}
}

func (t *one) wantReceived(s *transport.PushClient, p kintsugi.PushID) {
	t.Helper()
	if m, got := ok[kintsugi.HeadMessage](t)(s.Recv()).(kintsugi.Received); !got || m.Push != p {
		t.Fatalf("got %+v, want that %v is received", m, p)
	}
}

func (t *one) wantRefused(s *transport.PushClient, p kintsugi.PushID) {
	t.Helper()
	m := ok[kintsugi.HeadMessage](t)(s.Recv())
	if r, got := m.(kintsugi.Refused); !got || r.Push != p || r.Reason == "" {
		t.Fatalf("got %+v, want that %v is refused with a reason", m, p)
	}
}

// A straggler whose push is swept while it arrives gets an answer: it waits for one from every
// head.
func TestAPushThatIsTooLateIsAnswered(t *testing.T) {
	c := start(t)
	fast, _ := c.join(0, 1), c.join(1, 1)
	late := c.push()
	c.send(late, id(1), 1, c.frames[0])

	early := c.push()
	c.send(early, id(0), 1, c.frames...)
	c.wantReceived(early, id(0))
	if err := fast.Send(kintsugi.Ticket{Push: id(0), Views: []kintsugi.ViewNumber{1}, Examples: 1, SquaredNorm: 1}); err != nil {
		c.Fatal(err)
	}
	read := ok[*transport.ReadClient](c)(c.peer.Read(c.ctx))
	if err := read.Send(transport.ReadRequest{Line: 1, AtLeast: 1}); err != nil {
		c.Fatal(err)
	}
	f := ok[*transport.Frame](c)(read.Recv()) // the step is released, and what is too late is swept
	f.Release()

	c.send(late, id(1), 1, c.frames[1:]...)
	c.wantRefused(late, id(1))
	c.send(late, id(1), 1, c.frames...) // again, on the same stream
	c.wantRefused(late, id(1))
}

// A buffer that a reader is lent is written again after the reader is done with it, and not before,
// however many steps are made meanwhile.
func TestWhatAReaderIsLentIsNotWrittenBeforeItIsDone(t *testing.T) {
	if _, err := transport.NewMemory(4096, shm.ReadOnly); err != nil {
		t.Skipf("memory cannot be shared here: %v", err)
	}
	c := start(t)
	w, s := c.join(0, 1), c.push()
	c.join(1, 1) // steps begin when all members are there
	step := func(version kintsugi.Step) {
		t.Helper()
		p := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: version}
		c.send(s, p, 1, c.frames...)
		c.wantReceived(s, p)
		if err := w.Send(kintsugi.Ticket{Push: p, Views: []kintsugi.ViewNumber{1}, Examples: 1, SquaredNorm: 1}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(r *transport.ReadClient, atLeast kintsugi.Step) (frames []*transport.Frame) {
		t.Helper()
		if err := r.Send(transport.ReadRequest{Line: 1, AtLeast: atLeast}); err != nil {
			t.Fatal(err)
		}
		for range c.frames {
			frames = append(frames, ok[*transport.Frame](c)(r.Recv()))
		}
		return frames
	}
	whole := func(frames []*transport.Frame) bool {
		t.Helper()
		for _, f := range frames {
			if f.Shared() == nil {
				t.Fatal("a frame does not lie in memory that is lent")
			}
			if f.Check() != nil {
				return false
			}
		}
		return true
	}
	ends := map[string]func(r *transport.ReadClient) error{
		"says so": func(r *transport.ReadClient) error {
			return r.Send(transport.ReadRequest{Line: 1, Form: transport.ReadDone})
		},
		"asks for the next":    func(r *transport.ReadClient) error { return r.Send(transport.ReadRequest{Line: 1, AtLeast: 1 << 29}) },
		"has ended the stream": func(r *transport.ReadClient) error { return r.CloseSend() },
	}
	version := kintsugi.Step(0)
	for name, end := range ends {
		r := ok[*transport.ReadClient](c)(c.peer.Read(c.ctx, transport.Borrowing()))
		if !r.Borrows() {
			_, why := r.Memory()
			t.Fatalf("no memory is lent: %v", why)
		}
		held := read(r, version)
		other := ok[*transport.ReadClient](c)(c.peer.Read(c.ctx))
		for range 6 {
			step(version)
			version++
			for _, f := range read(other, version) {
				f.Release()
			}
			if !whole(held) {
				t.Fatalf("a version was written while a reader had it")
			}
		}
		if err := end(r); err != nil {
			t.Fatal(err)
		}
		var others []*transport.ReadClient // each holds a version, so no buffer is free for long, and the one that was held is used as soon as it is free
		for i := 0; whole(held); i++ {
			if i == 300 { // what the reader has sent is on its way meanwhile
				t.Fatalf("the memory of a version that nobody has was not written in %d steps; the reader %s", i, name)
			}
			step(version)
			version++
			others = append(others, ok[*transport.ReadClient](c)(c.peer.Read(c.ctx, transport.Borrowing())))
			read(others[i], version)
		}
		for _, r := range others {
			_ = r.CloseSend()
		}
	}
}

// A push is answered each time it is sent completely, so that a worker may always ask by sending it
// again.
func TestARepeatedPushIsAnsweredAgain(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	s := c.push()
	for range 3 {
		c.send(s, id(0), 1, c.frames...)
		c.wantReceived(s, id(0))
	}
	again := c.push()
	c.send(again, id(0), 1, c.frames...)
	c.wantReceived(again, id(0))
}

// A client that has sent everything and closed its side still gets its answers.
func TestAnswersOutliveTheRequests(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	s := c.push()
	c.send(s, id(0), 1, c.frames...)
	if err := s.CloseSend(); err != nil {
		c.Fatal(err)
	}
	c.wantReceived(s, id(0))
	if m, err := s.Recv(); err != io.EOF {
		c.Errorf("got %+v, %v, want the end of the stream", m, err)
	}
}

// Damaged bytes end the stream with the reason, are not held, and may be sent again.
func TestDamagedBytesAreNotHeld(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	s := c.push()
	lo, hi := c.layout.Span(c.frames[0])
	h := transport.Header{Kind: transport.KindPush, Push: id(0), Chunks: c.frames[0], Bytes: uint32(4 * (hi - lo)), CRC: 1}
	if err := s.Send(&transport.Frame{Header: h, Payload: make([]byte, h.Bytes)}); err != nil {
		c.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, kintsugi.ErrCorrupt) {
		c.Errorf("got %v, want %v", err, kintsugi.ErrCorrupt)
	}
	s = c.push()
	c.send(s, id(0), 1, c.frames...)
	c.wantReceived(s, id(0))
}

func TestAGradientThatIsNotFiniteIsRefused(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	s := c.push()
	c.send(s, id(0), float32(math.NaN()), c.frames...)
	c.wantRefused(s, id(0))
	c.send(s, id(0), 1, c.frames...)
	c.wantReceived(s, id(0))
}

// Frames that do not fit the shard end their stream. They never reach memory, and the server lives
// on.
func TestFramesThatBelongNowhereAreRefused(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	chunks := kintsugi.ChunkID(len(c.layout.Chunks))
	for _, x := range []struct {
		name   string
		header transport.Header
		want   error
	}{
		{"a shard that is not here", transport.Header{Kind: transport.KindPush, Shard: 9, Chunks: c.frames[0]}, kintsugi.ErrStaleView},
		{"chunks beyond the model", transport.Header{Kind: transport.KindPush, Chunks: kintsugi.ChunkRange{Lo: chunks, Hi: chunks + 1}}, kintsugi.ErrCorrupt},
		{"chunks without end", transport.Header{Kind: transport.KindPush, Chunks: kintsugi.ChunkRange{Hi: math.MaxUint32}}, kintsugi.ErrCorrupt},
		{"parameters", transport.Header{Kind: transport.KindParameters, Chunks: c.frames[0]}, kintsugi.ErrCorrupt},
		{"too few bytes", transport.Header{Kind: transport.KindPush, Chunks: c.frames[0]}, kintsugi.ErrCorrupt},
	} {
		s := c.push()
		x.header.Push, x.header.Bytes = id(0), 8
		if err := s.Send(&transport.Frame{Header: x.header, Payload: make([]byte, 8)}); err != nil {
			c.Fatal(err)
		}
		if m, err := s.Recv(); !errors.Is(err, x.want) {
			c.Errorf("%s: got %+v, %v, want %v", x.name, m, err, x.want)
		}
	}
	s := c.push()
	c.send(s, id(0), 1, c.frames...)
	c.wantReceived(s, id(0))
}

// A worker whose place is taken is told so. Otherwise it would compute in vain for ever.
func TestANewIncarnationFencesTheOldOne(t *testing.T) {
	c := start(t)
	old := c.join(0, 1)
	c.join(0, 2)
	if m, err := old.Recv(); !errors.Is(err, kintsugi.ErrFenced) {
		c.Errorf("the old one got %+v, %v, want %v", m, err, kintsugi.ErrFenced)
	}
	again := ok[*transport.WorkClient](c)(c.peer.Work(c.ctx))
	hello := kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Model: c.layout.Fingerprint(), Line: 1, Incarnation: 1}
	if err := again.Send(hello); err != nil {
		c.Fatal(err)
	}
	if m, err := again.Recv(); !errors.Is(err, kintsugi.ErrFenced) {
		c.Errorf("another try got %+v, %v, want %v", m, err, kintsugi.ErrFenced)
	}
}

// A worker that connects again takes its own place over, and goes on.
func TestTheSameIncarnationMayConnectAgain(t *testing.T) {
	c := start(t)
	old := c.join(0, 1)
	c.join(0, 1)
	if m, err := old.Recv(); err == nil || errors.Is(err, kintsugi.ErrFenced) {
		c.Errorf("the stream before got %+v, %v", m, err)
	}
}

// A step does not wait for a worker that has left, and waits for one whose stream is broken: it may
// come back, and counts then.
func TestAWorkerWhoseStreamBreaksMayComeBack(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		c := startChanged(t, 100, func(cfg *server.Config) { cfg.Consistency = agg.Config{} })
		gives := func(w *transport.WorkClient, slot kintsugi.Slot) {
			push := c.push()
			c.send(push, id(slot), 1, c.frames...)
			c.wantReceived(push, id(slot))
			if err := w.Send(kintsugi.Ticket{Push: id(slot), Views: []kintsugi.ViewNumber{1}, Examples: 1, SquaredNorm: 1}); err != nil {
				t.Fatal(err)
			}
		}
		stays := c.join(0, 1)
		of := *c
		var broken context.CancelFunc
		of.ctx, broken = context.WithCancel(c.ctx)
		goes := of.join(1, 1)
		gives(stays, 0)
		want := []kintsugi.PushID{id(0)}
		if breaks {
			broken()
			if _, err := goes.Recv(); err == nil {
				t.Fatal("a broken stream goes on")
			}
			gives(c.join(1, 1), 1)
			want = append(want, id(1))
		} else if err := goes.CloseSend(); err != nil {
			t.Fatal(err)
		}
		var counted []kintsugi.PushID
		for counted == nil {
			if m, is := ok[kintsugi.ConductorMessage](c)(stays.Recv()).(kintsugi.Released); is && m.Step == 1 {
				counted = m.Counted
			}
		}
		if !slices.Equal(counted, want) {
			t.Errorf("the stream breaks: %v; step 1 counts %v, want %v", breaks, counted, want)
		}
		broken()
	}
}

// A conductor with other settings must not make a server use state that it does not have.
func TestACommitWithAnotherRuleIsRefused(t *testing.T) {
	c := start(t)
	s := ok[*transport.ControlClient](c)(c.peer.Control(c.ctx))
	for _, m := range []kintsugi.ControlMessage{
		kintsugi.Take{Line: 1, View: 1, Fence: 99},
		kintsugi.Commit{Line: 1, Fence: 99, Decided: 99, Step: 1, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleAdam}},
	} {
		if err := s.Send(transport.Control{Message: m}); err != nil {
			c.Fatal(err)
		}
	}
	for {
		_, err := s.Recv()
		if err == nil {
			continue // the answer to Take
		}
		if !errors.Is(err, kintsugi.ErrOtherModel) {
			c.Errorf("got %v, want %v", err, kintsugi.ErrOtherModel)
		}
		return
	}
}
