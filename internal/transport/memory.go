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

// Between processes of one host a payload need not travel: the client of a data stream offers
// memory when it opens it, the server says whether it has that too, and from then on a frame may
// say where in it its payload lies. It offers pipes for the messages themselves likewise. Or it
// asks to borrow what the server has: then the server answers with the name of a segment to try,
// and tells the names of those in which payloads lie when the first one does.

// The metadata of offers, names of segments and pipes, and of what becomes of each, accepted or why
// not; and of borrowing, the wish and a segment to try.
const (
	offerKey  = "kintsugi-segment"
	pipesKey  = "kintsugi-pipes"
	borrowKey = "kintsugi-borrow"
	accepted  = "accepted"
	wished    = "wished"

	maxOffered = 1 << 40 // of one stream; the memory is the client's, so this bounds addresses only
)

// Memory is memory that this process offers, or lends, to the other sides of streams.
type Memory struct {
	segment *shm.Segment
	name    string
	close   func()
}

// NewMemory returns memory with room for n bytes of payloads; others says what the other sides of
// streams may do with it. shm.ErrNoSegment where there is none to be shared.
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

// Close ends offers: streams that are opened from now on do not get the memory. Those that have it
// keep it. The garbage collector closes what nobody refers to.
func (m *Memory) Close() { m.close() }

// Segment returns the memory itself.
func (m *Memory) Segment() *shm.Segment { return m.segment }

// offers are what a client offers with a stream, until it has heard what becomes of it. The zero value offers nothing.
type offers struct {
	memory *shm.Segment
	borrow bool
	why    error // memory is not there although it was asked for
	pipes  *shm.Pipes
	names  []func() // to call when the other side has answered: nobody can open what is offered by its name any more
}

// make makes what is to be offered, and returns the context to open the stream with.
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
	if o.memory == nil && o.pipes == nil && !o.borrow {
		return nil
	}
	md, err := raw.Header()
	if err == nil && len(md) == 0 { // the stream has ended in place of an answer: gRPC says why to whoever receives
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

// try returns why this process cannot read what the other side lends, nil if it can.
func try(names []string) error {
	if len(names) != 1 {
		return fmt.Errorf("%w: the other side lends none", shm.ErrNoSegment)
	}
	_, err := shm.OpenSegment(names[0], maxOffered, shm.ReadOnly)
	return err
}

// declined returns why the other side has declined an offer, nil if it has not.
func declined(said []string) error {
	switch {
	case len(said) == 1 && said[0] == accepted:
		return nil
	case len(said) == 1:
		return fmt.Errorf("%w: the other side says: %s", shm.ErrNoSegment, said[0])
	default: // of a release that knows of none
		return fmt.Errorf("%w: the other side does not answer", shm.ErrNoSegment)
	}
}

// shared is what a handler's stream has in common with its client, on the same host; each part may be missing.
type shared struct {
	memory *shm.Segment // offered by the client, for payloads to it
	trial  *Memory      // a segment that the client was told to try, before it is lent others
	pipes  *shm.Pipes
}

// acceptOffers opens what the client of a stream offers, if it does, lends it what it wishes, and tells it.
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

// close gives back what no stream has taken.
func (s shared) close() {
	if s.trial != nil {
		s.trial.Close()
	}
	if s.pipes != nil {
		s.pipes.Close()
	}
}

// Memory returns the memory that both sides of the stream have. If there is none it is nil, and the
// error says why it is not there although it was offered. Payloads lie behind its first
// shm.SegmentHeader bytes.
func (s *Stream[Out, In]) Memory() (*shm.Segment, error) { return s.memory, s.unshared }

// Lends reports whether the client of a handler's stream can read memory of this process: payloads
// may lie in what it is lent.
func (s *Stream[Out, In]) Lends() bool { return s.trial != nil }

// Borrows reports whether payloads may lie in memory of the other side.
func (s *Stream[Out, In]) Borrows() bool { return s.borrows }

// Lend returns the number of memory on this stream, for Header.Push.Sequence of frames whose
// payloads lie there. The client hears its name the first time.
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

// borrow opens what a frame of KindMemory names, and releases it.
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

// memoryOf returns where the payload of a received frame is to be found, nil if that is nowhere.
func (s *Stream[Out, In]) memoryOf(f *Frame) *shm.Segment {
	switch {
	case !s.borrows:
		return s.memory
	case int(f.Push.Sequence) < len(s.borrowed):
		return s.borrowed[f.Push.Sequence]
	}
	return nil
}

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
	f.shared, f.memory = memory.Bytes()[at:end:end], memory
	return nil
}

// MaxShared bounds the bytes of payloads in the memory of a stream: a place has 32 bits.
const MaxShared = PlaceBytes<<32 - 2*shm.SegmentHeader

// PlaceAt returns the place, for Header.Place, of a payload that begins so many bytes, a multiple
// of PlaceBytes, behind the first that payloads may have.
func PlaceAt(offset int) uint32 { return uint32((shm.SegmentHeader + offset) / PlaceBytes) }

// Places counts the places of payloads that lie one behind the other in the memory of a stream,
// each on a cache line of its own. The zero value begins at its beginning.
type Places struct{ used int }

// Take returns the place of a payload of n bytes.
func (p *Places) Take(n int) (place uint32) {
	const line = 64
	place = PlaceAt(p.used)
	p.used += (n + line - 1) / line * line
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
