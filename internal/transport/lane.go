package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// Between processes on one host, a message of a few hundred bytes costs gRPC about as much time as
// a small gradient: gRPC queues it, frames it twice, and passes it from goroutine to goroutine on
// both sides. A lane carries the messages of one stream through pipes instead. The sender writes to
// the pipe directly, and the receiver reads from it. In all other respects the stream stays the
// same: it is opened through gRPC, it ends with its context, its handler or its connection, and its
// gRPC status says why.

// Sizes of a lane, in bytes: of the read buffer, and of the length before each message.
const (
	laneBuffer  = 16 << 10
	lengthBytes = 4
)

// rawStream is the common interface of a gRPC stream and a lane.
type rawStream interface {
	SendMsg(any) error
	RecvMsg(any) error
	Context() context.Context
}

// lane is one side of a stream whose messages travel through pipes.
type lane struct {
	raw    rawStream
	pipes  *shm.Pipes
	in     *bufio.Reader
	room   []byte // buffer for a message to send
	got    []byte // a received message that is longer than the read buffer
	served bool   // this is the handler's side
	codec  codec

	ended chan struct{} // closed when gRPC has reported the end of the stream
	err   error         // why the stream has ended; io.EOF is the orderly end
	stop  sync.Once
}

// newLane takes over the messages of raw. From then on nobody else may send or receive on raw. A
// handler's lane must be closed when the handler returns.
func newLane(raw rawStream, p *shm.Pipes, served bool, c codec) *lane {
	l := &lane{
		raw: raw, pipes: p, in: bufio.NewReaderSize(p.In, laneBuffer), room: make([]byte, 0, 4096), served: served, codec: c, ended: make(chan struct{}),
	}
	go func() {
		defer close(l.ended)
		if l.err = raw.RecvMsg(&Frame{}); l.err == nil {
			l.err = fmt.Errorf("%w: a message beside the pipes of its stream", kintsugi.ErrCorrupt)
		}
		// After an orderly end, read the pipe to its end, since it may contain answers. After any
		// other end, the other side may exist but never answer, such as a stopped process.
		if l.err != io.EOF {
			l.close()
		}
	}()
	return l
}

// close ends the lane in both directions.
func (l *lane) close() { l.stop.Do(l.pipes.Close) }

// Context ends when the stream does.
func (l *lane) Context() context.Context { return l.raw.Context() }

// closeSend tells the other side that no more messages will be sent.
func (l *lane) closeSend() { _ = l.pipes.Out.Close() }

// SendMsg implements rawStream. It blocks while the pipe is full. The message may be changed when
// it has returned. If the other side is gone, RecvMsg returns the reason.
func (l *lane) SendMsg(v any) error {
	b, payload, err := l.message(v)
	if err != nil {
		return err
	}
	if _, err = l.pipes.Out.Write(b); err == nil && len(payload) > 0 {
		_, err = l.pipes.Out.Write(payload)
	}
	if f, ok := v.(*Frame); ok {
		f.done()
	}
	switch {
	case err == nil:
		return nil
	case l.served:
		return errGone
	}
	return io.EOF // as gRPC does
}

// trySend sends a message if the pipe can take all of it at once.
func (l *lane) trySend(v any) bool {
	b, payload, err := l.message(v)
	return err == nil && len(payload) == 0 && l.pipes.TryWrite(b)
}

// message returns a message's encoding, preceded by its length, and a payload to write after it.
func (l *lane) message(v any) (b, payload []byte, err error) {
	b = append(l.room[:0], 0, 0, 0, 0)
	switch m := v.(type) {
	case *Frame:
		if most := l.codec.mostPayload(m); len(m.Payload) > most {
			return nil, nil, fmt.Errorf("marshal frame: %d bytes, at most %d are allowed", len(m.Payload), most)
		}
		b, payload = b[:lengthBytes+HeaderBytes], m.Payload
		m.Header.encode(b[lengthBytes:])
	case proto.Message:
		if b, err = (proto.MarshalOptions{}).MarshalAppend(b, m); err != nil {
			return nil, nil, err
		}
		l.room = b
		if most := l.codec.most(v); len(b)-lengthBytes > most {
			return nil, nil, tooLong(v, len(b)-lengthBytes, most)
		}
	default:
		return nil, nil, fmt.Errorf("marshal %T: neither a frame nor a protobuf message", v)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-lengthBytes+len(payload)))
	if len(payload) <= cap(b)-len(b) { // one system call is cheaper than avoiding a short copy
		b, payload = append(b, payload...), nil
	}
	return b, payload, nil
}

// RecvMsg implements rawStream.
func (l *lane) RecvMsg(v any) error {
	head, err := l.in.Peek(lengthBytes)
	if err != nil {
		return l.end()
	}
	n := int(binary.LittleEndian.Uint32(head))
	if most := l.codec.most(v); n > most {
		l.close()
		return tooLong(v, n, most)
	}
	_, _ = l.in.Discard(lengthBytes) // they were peeked
	if f, ok := v.(*Frame); ok {
		return l.recvFrame(f, n)
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshal into %T: neither a frame nor a protobuf message", v)
	}
	if n <= l.in.Size() {
		b, err := l.in.Peek(n)
		if err != nil {
			return l.end()
		}
		err = proto.Unmarshal(b, m)
		_, _ = l.in.Discard(n)
		return broken(err)
	}
	if cap(l.got) < n {
		l.got = make([]byte, n)
	}
	if _, err := io.ReadFull(l.in, l.got[:n]); err != nil {
		return l.end()
	}
	return broken(proto.Unmarshal(l.got[:n], m))
}

// broken returns the error for bytes that are not a valid message.
func broken(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", kintsugi.ErrCorrupt, err)
	}
	return nil
}

// recvFrame receives a frame of n bytes. If the frame is invalid, it stores the error in it, as
// codec.Unmarshal does.
func (l *lane) recvFrame(f *Frame, n int) error {
	pool := mem.DefaultBufferPool()
	b := pool.Get(n)
	if _, err := io.ReadFull(l.in, *b); err != nil {
		pool.Put(b)
		return l.end()
	}
	data := mem.BufferSlice{mem.NewBuffer(b, pool)}
	defer data.Free()
	return l.codec.Unmarshal(data, f)
}

// end waits until the other side has stopped writing, and returns how gRPC says the stream has
// ended.
func (l *lane) end() error {
	<-l.ended
	if !l.served {
		l.close()
	}
	return l.err
}

// errGone is the error of a handler's Send when the client is gone.
var errGone = status.Error(codes.Unavailable, "the other side of the stream is gone")
