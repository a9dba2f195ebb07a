package transport

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Stream is one side of a bidirectional stream. One goroutine may send while another receives, but
// no two may call Send, or Recv, at the same time. Errors that are conditions of package kintsugi
// match with errors.Is on the other side too.
type Stream[Out, In any] struct {
	raw    rawStream
	encode func(Out) any
	recv   func(recv func(any) error) (In, error)
	close  func() error
	memory *shm.Segment // nil: none

	unshared error // why there is no memory although it was offered or wished for
	borrows  bool  // on a client: payloads may be in memory of the other side
	borrowed []*shm.Segment
	trial    *Memory    // on a handler: the segment that the client was asked to try; nil: nothing is lent
	lent     []*Memory  // the memory whose name the client knows
	from     *mtls.Name // on a handler: the only place that the client may speak for; nil: any
}

// Send sends a message. It blocks while flow control holds back the stream.
func (s *Stream[Out, In]) Send(m Out) error { return fromWire(s.raw.SendMsg(s.encode(m))) }

// TrySend sends a short message if that is possible without blocking, and reports whether it has.
// It always returns false if messages do not travel through pipes.
func (s *Stream[Out, In]) TrySend(m Out) bool {
	l, ok := s.raw.(*lane)
	return ok && l.trySend(s.encode(m))
}

// Recv receives the next message. io.EOF means that the other side has ended the stream in an
// orderly way.
func (s *Stream[Out, In]) Recv() (In, error) {
	for {
		m, err := s.recv(s.raw.RecvMsg)
		if f, ok := any(m).(*Frame); ok && err == nil {
			if f.Kind == KindMemory {
				if err = s.borrow(f); err == nil {
					continue
				}
			} else {
				err = f.find(s.memoryOf(f))
			}
		}
		if err == nil && s.from != nil {
			err = speaksAs(s.from, m)
		}
		return m, err
	}
}

// Near reports whether messages travel through pipes.
func (s *Stream[Out, In]) Near() bool {
	_, ok := s.raw.(*lane)
	return ok
}

// Context returns the context of the stream, which ends with the stream.
func (s *Stream[Out, In]) Context() context.Context { return s.raw.Context() }

// CloseSend tells the other side that no more messages will be sent. Only clients need it.
func (s *Stream[Out, In]) CloseSend() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// The types of streams, for clients and for servers.
type (
	WorkClient    = Stream[kintsugi.WorkerMessage, kintsugi.ConductorMessage]
	WorkServer    = Stream[kintsugi.ConductorMessage, kintsugi.WorkerMessage]
	WatchClient   = Stream[WatchRequest, kintsugi.RunEvent]
	WatchServer   = Stream[kintsugi.RunEvent, WatchRequest]
	ControlClient = Stream[Control, kintsugi.ReplicaMessage]
	ControlServer = Stream[kintsugi.ReplicaMessage, Control]
	PushClient    = Stream[*Frame, kintsugi.HeadMessage]
	PushServer    = Stream[kintsugi.HeadMessage, *Frame]
	FollowClient  = Stream[kintsugi.FollowerMessage, *Frame]
	FollowServer  = Stream[*Frame, kintsugi.FollowerMessage]
	ReadClient    = Stream[ReadRequest, *Frame]
	ReadServer    = Stream[*Frame, ReadRequest]
)

// Control is a control message and the shard that it is for.
type Control struct {
	Shard   kintsugi.ShardID
	Message kintsugi.ControlMessage
}

// ReadRequest asks a shard for its newest released version, as soon as that is at least AtLeast. With
// Unreleased, version AtLeast itself may come before it is released, once the shard has applied it.
// The reader must not use it before the conductor of the view has said that it is released, since
// until then another decision may take its place.
type ReadRequest struct {
	Line    kintsugi.Line
	Shard   kintsugi.ShardID
	AtLeast kintsugi.Step
	Form    ReadForm
	Have    kintsugi.Step // ReadChanges: the version that the reader has, on this line

	Unreleased bool
}

// ReadForm is the form in which a reader wants a version. The numbers are part of the protocol:
// never renumber them.
type ReadForm uint32

// The forms.
const (
	ReadWhole  ReadForm = 0 // all chunks, as float32
	ReadHalves ReadForm = 1 // all chunks, as bfloat16
	// At least the values that differ from the version that the reader has, in frames of whole chunks
	// as float32, or of the values that they name, as Sparse32; then a frame of KindVersion.
	ReadChanges ReadForm = 2
	// No answer: the reader has finished with the last answer, whose payloads are in borrowed
	// memory. Another request implies this too.
	ReadDone ReadForm = 3
)

// WatchRequest asks for the events of a run after a step of a line. Zero values ask for all events
// that are kept.
type WatchRequest struct {
	Line  kintsugi.Line
	After kintsugi.Step
}

// receiver returns a function that receives a protobuf message M and converts it.
func receiver[M any, P interface {
	*M
	proto.Message
}, In any](from func(P) (In, error)) func(func(any) error) (In, error) {
	return func(recv func(any) error) (In, error) {
		var none In
		m := P(new(M))
		if err := recv(m); err != nil {
			return none, fromWire(err)
		}
		return from(m)
	}
}

func recvFrame(recv func(any) error) (*Frame, error) {
	f := new(Frame)
	if err := recv(f); err != nil {
		return nil, fromWire(err)
	}
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

func encoder[In any, Out any](to func(In) Out) func(In) any {
	return func(m In) any { return to(m) }
}

func frameAsIs(f *Frame) any { return f }

func controlEncode(c Control) any { return controlTo(c.Shard, c.Message) }

func controlDecode(m *pb.ControlMessage) (Control, error) {
	s, msg, err := controlFrom(m)
	return Control{Shard: s, Message: msg}, err
}

func readTo(r ReadRequest) *pb.ReadRequest {
	return &pb.ReadRequest{Line: uint64(r.Line), Shard: uint32(r.Shard), AtLeast: uint64(r.AtLeast), Form: uint32(r.Form), Have: uint64(r.Have), Unreleased: r.Unreleased}
}

func readFrom(r *pb.ReadRequest) (ReadRequest, error) {
	q := ReadRequest{Line: kintsugi.Line(r.Line), Shard: kintsugi.ShardID(r.Shard), AtLeast: kintsugi.Step(r.AtLeast), Form: ReadForm(r.Form), Have: kintsugi.Step(r.Have), Unreleased: r.Unreleased}
	return q, nil
}

func watchTo(r WatchRequest) *pb.WatchRequest {
	return &pb.WatchRequest{Line: uint64(r.Line), After: uint64(r.After)}
}

func watchFrom(r *pb.WatchRequest) (WatchRequest, error) {
	return WatchRequest{Line: kintsugi.Line(r.Line), After: kintsugi.Step(r.After)}, nil
}
