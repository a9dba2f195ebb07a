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
// server says whether it has that too, and from then on a frame may say where in it its payload lies. It offers pipes for the messages
// themselves likewise.

// The metadata of offers, names of segments and pipes, and of what becomes of each, accepted or why not.
const (
	offerKey = "kintsugi-segment"
	pipesKey = "kintsugi-pipes"
	accepted = "accepted"

	maxOffered = 1 << 40 // of one stream; the memory is the client's, so this bounds addresses only
)

// offers are what a client offers with a stream, until it has heard what becomes of it. The zero value offers nothing.
type offers struct {
	memory *shm.Segment
	why    error // memory is not there although it was asked for
	pipes  *shm.Pipes
	names  []func() // to call when the other side has answered: nobody can open what is offered by its name any more
}

// make makes what is to be offered, and returns the context to open the stream with.
func (o *offers) make(ctx context.Context, pipes bool, shared int) context.Context {
	if shared > 0 {
		memory, name, closeName, err := shm.CreateSegment(shared)
		if o.memory, o.why = memory, err; err == nil {
			o.names = append(o.names, closeName)
			ctx = metadata.AppendToOutgoingContext(ctx, offerKey, name)
		}
	}
	if pipes {
		if p, name, closeName, err := shm.CreatePipes(); err == nil { // else messages travel as between hosts
			o.pipes, o.names = p, append(o.names, closeName)
			ctx = metadata.AppendToOutgoingContext(ctx, pipesKey, name)
		}
	}
	return ctx
}

// close makes names useless.
func (o *offers) close() {
	for _, f := range o.names {
		f()
	}
}

// refuse gives up what was offered.
func (o *offers) refuse() {
	if o.memory = nil; o.pipes != nil {
		o.pipes.Close()
		o.pipes = nil
	}
}

// answer waits for what the other side says, and gives up what it declines. An error says that the stream has ended.
func (o *offers) answer(raw grpc.ClientStream) error {
	if len(o.names) == 0 {
		return nil
	}
	md, err := raw.Header()
	if err != nil {
		return fromWire(err)
	}
	if o.memory != nil {
		if o.why = declined(md.Get(offerKey)); o.why != nil {
			o.memory = nil
		}
	}
	if o.pipes != nil && declined(md.Get(pipesKey)) != nil {
		o.pipes.Close()
		o.pipes = nil
	}
	return nil
}

// declined returns why the other side has declined an offer, nil if it has not.
func declined(said []string) error {
	switch {
	case len(said) == 1 && said[0] == accepted:
		return nil
	case len(said) == 1:
		return fmt.Errorf("%w: the other side says: %s", shm.ErrNoSegment, said[0])
	default: // of a release that knows of none, or the stream ended at once
		return fmt.Errorf("%w: the other side does not answer", shm.ErrNoSegment)
	}
}

// acceptOffers opens what the client of a stream offers, if it does, and tells it.
func acceptOffers(raw grpc.ServerStream) (memory *shm.Segment, pipes *shm.Pipes, err error) {
	md, _ := metadata.FromIncomingContext(raw.Context())
	said := make(metadata.MD)
	say := func(key string, err error) {
		if err != nil {
			said.Set(key, err.Error())
		} else {
			said.Set(key, accepted)
		}
	}
	if name := md.Get(offerKey); len(name) == 1 {
		memory, err = shm.OpenSegment(name[0], maxOffered)
		say(offerKey, err)
	}
	if name := md.Get(pipesKey); len(name) == 1 {
		pipes, err = shm.OpenPipes(name[0])
		say(pipesKey, err)
	}
	if len(said) == 0 {
		return nil, nil, nil
	}
	if err := raw.SendHeader(said); err != nil {
		if pipes != nil {
			pipes.Close()
		}
		return nil, nil, err
	}
	return memory, pipes, nil
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
