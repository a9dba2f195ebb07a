package transport

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// Between processes on one host, a payload need not be sent. When the client of a data stream opens
// it, it offers memory, and the server says whether it could map the memory. From then on a frame
// may say where in this memory its payload is. In the same way the client offers pipes for the
// messages themselves. The client may also ask to borrow the server's memory. The server then
// answers with the name of a segment to try. Later it sends the name of each segment with payloads,
// before the first payload in it.

// The keys of the gRPC metadata. An offer has the name of a segment or of pipes; the answer says
// that it is accepted, or why not. For borrowing, the client sends its wish, and the server the
// name of a segment to try.
const (
	offerKey  = "kintsugi-segment"
	pipesKey  = "kintsugi-pipes"
	borrowKey = "kintsugi-borrow"
	accepted  = "accepted"
	wished    = "wished"

	maxOffered = 1 << 40 // limit for one stream; the client allocates the memory, so this limits only addresses
)

// Memory is memory of this process that it offers or lends to the other side of streams.
type Memory struct {
	segment *shm.Segment
	name    string
	close   func()
}

// NewMemory returns memory with room for n bytes of payloads. others says what the other sides of
// streams may do with it. If memory cannot be shared here, the error is a shm.ErrNoSegment.
func NewMemory(n int, others shm.Access) (*Memory, error) {
	if n > MaxShared {
		return nil, fmt.Errorf("%w: %d bytes are more than the %d in which a payload can be found", shm.ErrNoSegment, n, MaxShared)
	}
	segment, name, closeName, err := shm.CreateSegment(n, others)
	if err != nil {
		return nil, err
	}
	m := &Memory{segment, name, sync.OnceFunc(closeName)}
	runtime.AddCleanup(m, func(closeName func()) { closeName() }, m.close)
	return m, nil
}

// Close ends the offers: streams that are opened later do not get the memory. Streams that already
// have it keep it. The garbage collector frees the memory when nothing refers to it.
func (m *Memory) Close() { m.close() }

// Segment returns the memory itself.
func (m *Memory) Segment() *shm.Segment { return m.segment }

// offers is what a client offers with a stream, until the server has answered. The zero value
// offers nothing.
type offers struct {
	memory *shm.Segment
	borrow bool
	why    error // why there is no memory although it was asked for
	pipes  *shm.Pipes
	names  []func() // to call when the server has answered: afterwards nobody can open the offered things by name
}

// make creates what is offered, and returns the context to open the stream with.
func (o *offers) make(ctx context.Context, pipes bool, opts options) context.Context {
	m := opts.memory
	if opts.shared > 0 {
		if m, o.why = NewMemory(opts.shared, shm.Writable); o.why == nil {
			o.names = append(o.names, m.Close)
		}
	}
	if m != nil {
		o.memory = m.segment
		ctx = metadata.AppendToOutgoingContext(ctx, offerKey, m.name)
	}
	if o.borrow = opts.borrow; o.borrow {
		ctx = metadata.AppendToOutgoingContext(ctx, borrowKey, wished)
	}
	if pipes {
		if p, name, closeName, err := shm.CreatePipes(); err == nil { // otherwise messages travel as between hosts
			o.pipes, o.names = p, append(o.names, closeName)
			ctx = metadata.AppendToOutgoingContext(ctx, pipesKey, name)
		}
	}
	return ctx
}

// close removes the names of what was offered.
func (o *offers) close() {
	for _, f := range o.names {
		f()
	}
}

// refuse gives up everything that was offered.
func (o *offers) refuse() {
	if o.memory = nil; o.pipes != nil {
		o.pipes.Close()
		o.pipes = nil
	}
}

// answer waits for the server's answer, and gives up what it declines. It returns an error if the
// stream has ended.
func (o *offers) answer(raw grpc.ClientStream) error {
	if o.memory == nil && o.pipes == nil && !o.borrow {
		return nil
	}
	md, err := raw.Header()
	if err == nil && len(md) == 0 { // the stream has ended instead of an answer; receiving returns the reason
		if err = raw.RecvMsg(&Frame{}); err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return fromWire(err)
	}
	if o.memory != nil {
		if o.why = declined(md.Get(offerKey)); o.why != nil {
			o.memory = nil
		}
	}
	if o.borrow {
		o.why = try(md.Get(borrowKey))
		o.borrow = o.why == nil
	}
	if o.pipes != nil && declined(md.Get(pipesKey)) != nil {
		o.pipes.Close()
		o.pipes = nil
	}
	return nil
}

// try checks whether this process can read memory that the other side lends. It returns the reason
// if not.
func try(names []string) error {
	if len(names) != 1 {
		return fmt.Errorf("%w: the other side lends none", shm.ErrNoSegment)
	}
	_, err := shm.OpenSegment(names[0], maxOffered, shm.ReadOnly)
	return err
}

// declined returns the reason why the other side has declined an offer, or nil if it has not.
func declined(said []string) error {
	switch {
	case len(said) == 1 && said[0] == accepted:
		return nil
	case len(said) == 1:
		return fmt.Errorf("%w: the other side says: %s", shm.ErrNoSegment, said[0])
	default: // a release that does not know such offers
		return fmt.Errorf("%w: the other side does not answer", shm.ErrNoSegment)
	}
}

// shared is what the stream of a handler shares with its client on the same host. Each part may be
// missing.
type shared struct {
	memory *shm.Segment // offered by the client, for payloads to this process
	trial  *Memory      // a segment that the client was asked to try, before other memory is lent to it
	pipes  *shm.Pipes
}

// acceptOffers opens what the client of a stream offers, prepares memory to lend if the client
// wishes to borrow, and answers.
func acceptOffers(raw grpc.ServerStream) (s shared, err error) {
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
		s.memory, err = shm.OpenSegment(name[0], maxOffered, shm.Writable)
		say(offerKey, err)
	}
	if len(md.Get(borrowKey)) == 1 {
		if s.trial, err = NewMemory(1, shm.ReadOnly); err == nil {
			said.Set(borrowKey, s.trial.name)
		}
	}
	if name := md.Get(pipesKey); len(name) == 1 {
		s.pipes, err = shm.OpenPipes(name[0])
		say(pipesKey, err)
	}
	if len(said) == 0 {
		return shared{}, nil
	}
	if err := raw.SendHeader(said); err != nil {
		s.close()
		return shared{}, err
	}
	return s, nil
}

// close releases the parts that no stream uses.
func (s shared) close() {
	if s.trial != nil {
		s.trial.Close()
	}
	if s.pipes != nil {
		s.pipes.Close()
	}
}

// Memory returns the memory that both sides of the stream share, or nil. If memory was offered or
// wished for and is not shared, the error is the reason. Payloads begin after the first
// shm.SegmentHeader bytes.
func (s *Stream[Out, In]) Memory() (*shm.Segment, error) { return s.memory, s.unshared }

// Lends reports whether the client of a handler's stream can read memory of this process, so that
// Lend may be used.
func (s *Stream[Out, In]) Lends() bool { return s.trial != nil }

// Borrows reports whether received frames may have their payloads in memory of the other side.
func (s *Stream[Out, In]) Borrows() bool { return s.borrows }

// Lend returns the number of memory m on this stream, for Header.Push.Sequence of frames whose
// payloads are in it. The first call for m sends the name of the memory to the client.
func (s *Stream[Out, In]) Lend(m *Memory) (number uint32, err error) {
	if i := slices.Index(s.lent, m); i >= 0 {
		return uint32(i), nil
	}
	number, s.lent = uint32(len(s.lent)), append(s.lent, m)
	name := []byte(m.name)
	return number, fromWire(s.raw.SendMsg(&Frame{Payload: name, Header: Header{
		Kind: KindMemory, Push: kintsugi.PushID{Sequence: number}, Bytes: uint32(len(name)), CRC: Checksum(name),
	}}))
}

// borrow opens the memory that a frame of KindMemory names, and releases the frame.
func (s *Stream[Out, In]) borrow(f *Frame) error {
	defer f.Release()
	name := make([]byte, f.Bytes)
	if err := f.CopyTo(name); err != nil {
		return err
	}
	if !s.borrows || int(f.Push.Sequence) != len(s.borrowed) {
		return fmt.Errorf("%w: the other side lends memory %d, this one has borrowed %d", kintsugi.ErrCorrupt, f.Push.Sequence, len(s.borrowed))
	}
	x, err := shm.OpenSegment(string(name), maxOffered, shm.ReadOnly)
	s.borrowed = append(s.borrowed, x)
	return err
}

// memoryOf returns the memory that holds the payload of a received frame, or nil if there is none.
func (s *Stream[Out, In]) memoryOf(f *Frame) *shm.Segment {
	switch {
	case !s.borrows:
		return s.memory
	case int(f.Push.Sequence) < len(s.borrowed):
		return s.borrowed[f.Push.Sequence]
	}
	return nil
}

// find sets the payload of a received frame that was not sent with it.
func (f *Frame) find(memory *shm.Segment) error {
	if f.Place == 0 {
		return nil
	}
	at, end := uint64(f.Place)*PlaceBytes, uint64(f.Place)*PlaceBytes+uint64(f.Bytes)
	if memory == nil || at < shm.SegmentHeader || end > uint64(len(memory.Bytes())) {
		return fmt.Errorf("%w: frame of chunks [%d, %d) lies at [%d, %d) of memory that this stream does not have",
			kintsugi.ErrCorrupt, f.Chunks.Lo, f.Chunks.Hi, at, end)
	}
	f.shared, f.memory = memory.Bytes()[at:end:end], memory
	return nil
}

// MaxShared is the limit on the bytes of payloads in the memory of a stream: a place has 32 bits.
const MaxShared = PlaceBytes<<32 - 2*shm.SegmentHeader

// PlaceAt returns the place, for Header.Place, of a payload at an offset in bytes, counted from the
// first byte that payloads may use. The offset must be a multiple of PlaceBytes.
func PlaceAt(offset int) uint32 { return uint32((shm.SegmentHeader + offset) / PlaceBytes) }

// Places allocates places for payloads one after the other in the memory of a stream, each aligned
// to a cache line. The zero value starts at the beginning.
type Places struct{ used int }

// Take returns the place for a payload of n bytes.
func (p *Places) Take(n int) (place uint32) {
	const line = 64
	place = PlaceAt(p.used)
	p.used += (n + line - 1) / line * line
	return place
}

// Bytes returns the number of bytes allocated so far.
func (p *Places) Bytes() int { return p.used }

// Put returns the n bytes of memory at a place, or nil if the memory ends before.
func Put(memory *shm.Segment, place uint32, n int) []byte {
	b, at := memory.Bytes(), int(place)*PlaceBytes
	if at+n > len(b) {
		return nil
	}
	return b[at : at+n : at+n]
}
