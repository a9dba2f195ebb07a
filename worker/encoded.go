package worker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// message is an encoded gradient. Its bytes are kept until the fate of its push is known. They
// cannot be computed again, since they contain the residual of earlier gradients.
type message struct {
	ticket kintsugi.Ticket
	parts  [][]parcel // by shard that has chunks
	norms  []float64  // by chunk, of the decoded payload
	owns   []float64  // by chunk, the dot product of the gradient and the decoded payload; nil: not measured
	sent   pending

	memory *transport.Memory // holds the payloads and must stay mapped as long as they are used; nil: none
	lent   *transport.Memory // of the session that it was last sent in; nil: that session had none
	room   int               // in the memory of lent
}

// parcel is one frame of a message.
type parcel struct {
	header  transport.Header
	payload []byte // raw or packed

	raw, packed []byte // before and after lossless compression
	decoded     []float32
	made        bool // the payload is complete
}

// encoder makes messages and keeps those whose fate is not known. It outlives sessions. Only the
// goroutine that computes uses it.
type encoder struct {
	cfg      *Config
	feedback *compress.Feedback // nil: Config.Encoded keeps the residual
	fates    settler
	book     fates.Book
	open     map[kintsugi.PushID]*message
	spare    []*message
	along    bool // measure the dot product of gradients and their messages
}

// settler is told the fate of pushes.
type settler interface {
	Counted(id kintsugi.PushID)
	Dropped(id kintsugi.PushID)
	Drop() (norm float64)
}

func newEncoder(cfg *Config) *encoder {
	e := &encoder{cfg: cfg, open: make(map[kintsugi.PushID]*message)}
	if cfg.Encoded != nil {
		e.fates = cfg.Encoded
		return e
	}
	e.feedback = compress.NewFeedback(cfg.Codec, cfg.Layout, cfg.Seed)
	e.fates = e.feedback
	return e
}

// cut returns the ranges of a shard's chunks that are sent as one frame each.
func cut(cfg *Config, chunks kintsugi.ChunkRange) []kintsugi.ChunkRange {
	if cfg.Codec == nil {
		return transport.Frames(cfg.Layout, chunks)
	}
	return transport.FramesOf(cfg.Layout, chunks, func(c kintsugi.Chunk) int {
		return mostOf(cfg, c)
	})
}

// mostOf returns an upper bound of the payload of an encoded chunk, in bytes.
func mostOf(cfg *Config, c kintsugi.Chunk) int {
	return cfg.Codec.MaxBytes(c.Len(), cfg.Layout.Tensors[c.Tensor].RowLen())
}

// push sends the rest of the message of a ticket. It sets the ticket's squared norm to that of the
// decoded message.
func (e *encoder) push(s *session, t *kintsugi.Ticket, o *outgoing) (*kintsugi.Refused, error) {
	m := e.open[t.Push]
	views := m.ticket.Views
	m.ticket = *t
	m.ticket.Views = views
	refused, err := s.deliver(o)
	switch {
	case errors.Is(err, kintsugi.ErrNotFinite): // the worker ends, and sends nothing again
		return nil, err
	case err != nil:
		return nil, errors.Join(err, e.complete(m, s, o.grads))
	}
	m.ticket.SquaredNorm = m.norm()
	t.SquaredNorm = m.ticket.SquaredNorm
	return refused, nil
}

// outgoing returns the push of a ticket. If this worker has sent the push before and does not know
// its fate, the push repeats the same bytes.
func (e *encoder) outgoing(s *session, t kintsugi.Ticket, grads []float32) *outgoing {
	if m := e.open[t.Push]; m != nil {
		if m.lent != s.rooms.memory { // heads no longer have the memory of an earlier session
			m.lent, m.room = s.rooms.memory, s.room(t.Push, nil, nil)
		}
		return newOutgoing(s, t.Push, grads, func(i, j int, x *shardStreams) error { return e.resend(m, s, i, j, x) })
	}
	m := e.begin(t, s)
	return newOutgoing(s, t.Push, grads, func(i, j int, x *shardStreams) error { return e.encode(m, s, i, j, x, grads) })
}

// begin starts the message of a gradient.
func (e *encoder) begin(t kintsugi.Ticket, s *session) *message {
	m := &message{norms: make([]float64, len(e.cfg.Layout.Chunks))}
	if e.along {
		m.owns = make([]float64, len(e.cfg.Layout.Chunks))
	}
	if n := len(e.spare); n > 0 {
		m, e.spare = e.spare[n-1], e.spare[:n-1]
	}
	m.ticket = t
	for i := range m.parts {
		for j := range m.parts[i] {
			if m.memory != nil { // it belongs to another message, or to a session that is over
				m.parts[i][j].raw = nil
			}
		}
	}
	m.memory, m.lent = nil, nil
	m.parts = resize(m.parts, len(s.shards))
	for i, x := range s.shards {
		m.parts[i] = resize(m.parts[i], len(x.pushes))
		for j := range m.parts[i] {
			m.parts[i][j].made = false
		}
	}
	m.lodge(s)
	e.open[t.Push] = m
	e.book.Begin(t.Push)
	return m
}

// lodge makes a message be encoded in a room of the session, if the session has rooms.
func (m *message) lodge(s *session) {
	if s.rooms.memory == nil {
		return
	}
	m.memory, m.lent, m.room = s.rooms.memory, s.rooms.memory, s.room(m.ticket.Push, nil, nil)
	for i, x := range s.shards {
		for j, frame := range x.pushes {
			m.parts[i][j].raw = s.rooms.at(m.room, x.offsets[j], mostBytes(s.cfg, frame))[:0]
		}
	}
}

// send sends parcel j to the head of a shard. If the head shares memory, send sends only the place
// of the payload in the message's room, and copies the payload there unless it was encoded there.
func (m *message) send(s *session, x *shardStreams, p *parcel, j int) error {
	h, payload := p.header, p.payload
	if x.memory != nil && len(payload) > 0 {
		at := s.rooms.at(m.room, x.offsets[j], len(payload))
		if &at[0] != &payload[0] {
			copy(at, payload)
		}
		h.Place, payload = s.rooms.place(m.room, x.offsets[j]), nil
	}
	return s.send(x, h, payload, &m.sent)
}

// encode encodes frame j of the message's i-th shard, which is x, and sends it.
func (e *encoder) encode(m *message, s *session, i, j int, x *shardStreams, grads []float32) error {
	start := time.Now()
	p := &m.parts[i][j]
	if err := e.fill(m, p, x, j, grads); err != nil {
		return err
	}
	x.encoding += time.Since(start)
	return m.send(s, x, p, j)
}

// resend sends frame j of the message's i-th shard again, unchanged.
func (e *encoder) resend(m *message, s *session, i, j int, x *shardStreams) error {
	return m.send(s, x, &m.parts[i][j], j)
}

// complete encodes the missing frames of a message that could not be delivered: it may be sent
// again later.
func (e *encoder) complete(m *message, s *session, grads []float32) error {
	for i, x := range s.shards {
		for j := range m.parts[i] {
			if p := &m.parts[i][j]; !p.made {
				if err := e.fill(m, p, x, j, grads); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fill encodes the chunks of frame j of a shard.
func (e *encoder) fill(m *message, p *parcel, x *shardStreams, j int, grads []float32) error {
	codec, id, r := e.cfg.Codec, m.ticket.Push, x.pushes[j]
	p.raw = p.raw[:0]
	for i := r.Lo; i < r.Hi; i++ {
		c := e.cfg.Layout.Chunks[i]
		var decoded []float32
		var err error
		if p.raw, decoded, m.norms[i], err = e.payload(p, id, i, grads); errors.Is(err, kintsugi.ErrNotFinite) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w of %v: tensor %s encoded with %s: %w; lower the learning rate or look at the data",
				errGradient, id, e.cfg.Layout.TensorAt(c.Lo), codec.Name(), err)
		}
		if m.owns != nil {
			m.owns[i] = dot(grads[c.Lo:c.Hi], decoded)
		}
	}
	stage := compress.Plain
	p.payload = p.raw
	if p.packed, stage = codec.Pack(p.packed[:0], p.raw); stage != compress.Plain {
		p.payload = p.packed
	}
	p.header = transport.Header{
		Kind: transport.KindPush, Codec: transport.CodecOf(codec.Encoding(), stage), Shard: x.id, Push: id, Chunks: r,
		Bytes: uint32(len(p.payload)), CRC: transport.Checksum(p.payload),
	}
	p.made = true
	return nil
}

// payload appends the payload of a chunk to that of the frame. It returns what the chunk is decoded
// to, and its squared norm; p or grads may own the values, and they are nil if the payload is that of
// cfg.Encoded.
func (e *encoder) payload(p *parcel, id kintsugi.PushID, i kintsugi.ChunkID, grads []float32) (raw []byte, decoded []float32, norm float64, err error) {
	c := e.cfg.Layout.Chunks[i]
	if e.cfg.Encoded != nil {
		payload, norm := e.cfg.Encoded.Payload(i)
		_, err := kernels.Check(e.cfg.Codec.Encoding(), c.Len(), payload)
		return append(p.raw, payload...), nil, norm, err
	}
	at := len(p.raw)
	decoded = grads[c.Lo:c.Hi]
	if memory := e.cfg.InPlace; memory != nil && memory.Touched != nil && e.cfg.Codec.Exact() && e.cfg.Codec.Encoding() == kernels.Sparse32 {
		raw = compress.AppendTouched(p.raw, memory.Touched, decoded, c.Lo)
	} else {
		raw = e.feedback.Encode(p.raw, id, i, decoded)
	}
	exact := e.cfg.Codec.Exact()
	if !exact {
		p.decoded = resize(p.decoded, c.Len())
		decoded = p.decoded
		err = e.decode(decoded, raw[at:])
	}
	switch encoding := e.cfg.Codec.Encoding(); {
	case err != nil:
	case exact && encoding == kernels.Sparse32: // most of the chunk may not be named
		norm = kernels.NamedNorm(encoding, c.Len(), raw[at:])
	default:
		norm, err = e.cfg.Device.SquaredNorm(decoded)
	}
	if exact && err == nil && (math.IsNaN(norm) || math.IsInf(norm, 0)) { // as in worker.measure; for others the gradient was checked before
		err = e.cfg.finite(id, grads)
	}
	return raw, decoded, norm, err
}

// decode decodes a payload into values. The gradient itself is finite at this point, but its sum with
// the residual may not be.
func (e *encoder) decode(values []float32, payload []byte) error {
	if _, err := kernels.Check(e.cfg.Codec.Encoding(), len(values), payload); err != nil {
		return err
	}
	return e.cfg.Device.Decode(values, e.cfg.Codec.Encoding(), payload)
}

// norm returns the squared norm of the decoded message.
func (m *message) norm() float64 {
	sum := 0.0
	for _, n := range m.norms {
		sum += n
	}
	return sum
}

// own returns the dot product of a message and its gradient, or 0 if it is not known.
func (e *encoder) own(p kintsugi.PushID) float64 {
	sum := 0.0
	if m := e.open[p]; m != nil {
		for _, o := range m.owns {
			sum += o
		}
	}
	return sum
}

// settle adopts the residual of a push that was counted, or takes back that of a push that was not.
func (e *encoder) settle(f fates.Fate) {
	m := e.open[f.Push]
	if m == nil {
		return
	}
	e.book.Settle(f.Push)
	delete(e.open, f.Push)
	if f.Counted {
		e.fates.Counted(f.Push)
	} else {
		e.fates.Dropped(f.Push)
	}
	if m.sent.n.Load() == 0 { // otherwise gRPC may still be reading it
		e.spare = append(e.spare, m)
	}
}

// join tells the encoder that a session has joined in a view and read a version. It returns what
// the worker must ask about, in order.
func (e *encoder) join(v kintsugi.View, version kintsugi.Step) []fates.Question {
	j := e.book.Join(v, version)
	for _, f := range j.Settled {
		e.settle(f)
	}
	if j.GivenUp {
		e.cfg.Log.Warn("residual dropped: the run went back to a checkpoint", "line", v.Line, "norm", e.fates.Drop(), "open_pushes", j.Lost)
		clear(e.open)
	}
	return j.Ask
}

// pass gives up the pushes on versions before this one that cannot have been counted.
func (e *encoder) pass(version kintsugi.Step) {
	for _, f := range e.book.Pass(version) {
		e.settle(f)
	}
}

// resize returns a slice of n elements. It keeps the memory and the elements of x as far as they
// fit.
func resize[T any](x []T, n int) []T { return slices.Grow(x[:0], n)[:n] }
