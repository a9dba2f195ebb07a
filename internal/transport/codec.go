package transport

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
)

// codec is the gRPC codec of this package. It carries Frames raw and everything else as protobuf,
// so that standard clients can use the health service. Both sides set it explicitly; it is not
// registered globally. It neither sends nor reads messages above their limit.
type codec struct{ sizes Sizes }

// Name returns the content-subtype of calls: application/grpc+kintsugi.
func (codec) Name() string { return "kintsugi" }

// Marshal passes on a frame's payload without copying it.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*Frame)
	if !ok {
		m, ok := v.(proto.Message)
		if !ok {
			return nil, fmt.Errorf("marshal %T: neither a frame nor a protobuf message", v)
		}
		b, err := proto.Marshal(m)
		if most := c.most(v); err == nil && len(b) > most {
			err = tooLong(v, len(b), most)
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	if most := c.mostPayload(f); len(f.Payload) > most {
		return nil, fmt.Errorf("marshal frame: %d bytes, at most %d are allowed", len(f.Payload), most)
	}
	head := make([]byte, HeaderBytes)
	f.Header.encode(head)
	slices := mem.BufferSlice{mem.SliceBuffer(head)}
	switch {
	case len(f.Payload) == 0:
		f.done()
	case mem.IsBelowBufferPoolingThreshold(cap(f.Payload)):
		// gRPC gives no completion signal for such small buffers, so copy the payload.
		slices = append(slices, mem.SliceBuffer(append([]byte(nil), f.Payload...)))
		f.done()
	default:
		slices = append(slices, mem.NewBuffer(&f.Payload, completion{f}))
	}
	return slices, nil
}

func (f *Frame) done() {
	if f.Done != nil {
		f.Done()
	}
}

// completion is the pool that gRPC returns a payload to when the payload has been written.
type completion struct{ f *Frame }

func (c completion) Get(int) *[]byte { panic("transport: completion is no source of buffers") }
func (c completion) Put(*[]byte)     { c.f.done() }

// Unmarshal keeps a reference to a frame's bytes instead of copying them; Frame.Release drops it.
// If the frame is invalid, Unmarshal stores the error in the frame, for recvFrame. gRPC would turn
// a returned error into text, and the receiver could no longer tell damaged bytes from a sender of
// another release.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		m, ok := v.(proto.Message)
		if !ok {
			return fmt.Errorf("unmarshal into %T: neither a frame nor a protobuf message", v)
		}
		if most := c.most(v); data.Len() > most { // gRPC has only one limit, that of the longest message of any stream
			return tooLong(v, data.Len(), most)
		}
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		return proto.Unmarshal(buf.ReadOnlyData(), m)
	}
	var head [HeaderBytes]byte
	n := 0
	for _, b := range data {
		if n += copy(head[n:], b.ReadOnlyData()); n == HeaderBytes {
			break
		}
	}
	if f.Header, f.err = decodeHeader(head[:n]); f.err != nil {
		return nil
	}
	want := int(f.Bytes)
	if f.Place != 0 {
		want = 0
	}
	if got := data.Len() - HeaderBytes; got != want {
		f.err = fmt.Errorf("%w: frame carries %d bytes, header says %d", kintsugi.ErrCorrupt, got, want)
		return nil
	}
	data.Ref()
	f.data = data
	return nil
}
