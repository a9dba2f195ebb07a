package transport

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// Between processes of one host a payload need not travel: the client of a data stream offers memory when it opens it, the
// server says whether it has that too, and from then on a frame may say where in it its payload lies.

// offerKey is the metadata of an offer, the name of a segment, and of what becomes of it, accepted or why not.
const (
	offerKey = "kintsugi-segment"
	accepted = "accepted"

	maxOffered = 1 << 40 // of one stream; the memory is the client's, so this bounds addresses only
)

// An offer is memory that the other side has not accepted yet.
type offer struct {
	memory *shm.Segment
	name   string
	close  func() // nobody can open it by its name any more
}

func makeOffer(n int) (o offer, err error) {
	o.memory, o.name, o.close, err = shm.CreateSegment(n)
	return o, err
}

// attach returns the context to open a stream with.
func (o offer) attach(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, offerKey, o.name)
}

// answer waits for what the other side says: why it declines, or that the stream has ended.
func (o offer) answer(raw grpc.ClientStream) (why, err error) {
	md, err := raw.Header()
	if err != nil {
		return nil, fromWire(err)
	}
	switch said := md.Get(offerKey); {
	case len(said) == 1 && said[0] == accepted:
		return nil, nil
	case len(said) == 1:
		return fmt.Errorf("%w: the other side says: %s", shm.ErrNoSegment, said[0]), nil
	default: // of a release that knows of none, or the stream ended at once
		return fmt.Errorf("%w: the other side does not answer", shm.ErrNoSegment), nil
	}
}

// acceptOffer opens the memory that the client of a stream offers, if it does, and tells it.
func acceptOffer(raw grpc.ServerStream) (*shm.Segment, error) {
	md, _ := metadata.FromIncomingContext(raw.Context())
	name := md.Get(offerKey)
	if len(name) != 1 {
		return nil, nil
	}
	memory, err := shm.OpenSegment(name[0], maxOffered)
	said := accepted
	if err != nil {
		said = err.Error()
	}
	return memory, raw.SendHeader(metadata.Pairs(offerKey, said))
}

// Memory returns the memory that both sides of the stream have. If there is none it is nil, and the error says why it is not there although
// it was offered. Payloads lie behind its first shm.SegmentHeader bytes.
func (s *Stream[Out, In]) Memory() (*shm.Segment, error) { return s.memory, s.unshared }

// find finds the payload of a received frame that was not sent with it.
func (f *Frame) find(memory *shm.Segment) error {
	if f.Place == 0 {
		return nil
	}
	at, end := uint64(f.Place)*PlaceBytes, uint64(f.Place)*PlaceBytes+uint64(f.Bytes)
	if memory == nil || at < shm.SegmentHeader || end > uint64(len(memory.Bytes())) {
		return fmt.Errorf("%w: frame of chunks [%d, %d) lies at [%d, %d) of memory that this stream does not have",
			kintsugi.ErrCorrupt, f.Chunks.Lo, f.Chunks.Hi, at, end)
	}
	f.shared = memory.Bytes()[at:end:end]
	return nil
}

// Places counts the places of payloads that lie one behind the other in the memory of a stream. The zero value begins at its
// beginning.
type Places struct{ used int }

// Take returns the place of a payload of n bytes, for Header.Place, and the bytes of memory that are needed so far.
func (p *Places) Take(n int) (place uint32) {
	place = uint32((shm.SegmentHeader + p.used) / PlaceBytes)
	p.used += (n + PlaceBytes - 1) / PlaceBytes * PlaceBytes
	return place
}

// Bytes returns how many bytes the payloads take.
func (p *Places) Bytes() int { return p.used }

// Put returns the memory of a payload of n bytes at a place, nil if the memory ends before.
func Put(memory *shm.Segment, place uint32, n int) []byte {
	b, at := memory.Bytes(), int(place)*PlaceBytes
	if at+n > len(b) {
		return nil
	}
	return b[at : at+n : at+n]
}
