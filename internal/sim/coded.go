package sim

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// conserved is the promise of error feedback. A gradient has one value for each value of a chunk.
// All are integers, so that sums of float32 are exact. A worker's residual is compared, bit by bit,
// with the sum, over its counted pushes, of the difference between the gradient and what was sent
// for it.
const conserved = "what a codec leaves out of what is counted is brought later, and once"

// coding is the state of a worker with encoded gradients: package worker's encoder as a state
// machine, around the real book of fates and the real error feedback.
type coding struct {
	book     fates.Book
	feedback *compress.Feedback // nil: gradients are not encoded
	open     map[kintsugi.PushID]*message
	left     []float64 // by value: the sum, over pushes taken for counted, of the gradient less what was sent
}

// message is an encoded gradient. It is kept until the fate of its push is known.
type message struct {
	ticket   kintsugi.Ticket
	hashes   []uint64  // by chunk, of the gradient
	payloads []uint64  // by chunk; 0: not encoded yet
	left     []float64 // by value: the gradient less what was sent
}

func newCoding(c *Cluster) coding {
	if c.cfg.Codec == "" {
		return coding{}
	}
	codec, err := compress.Parse(c.cfg.Codec)
	if err != nil {
		c.fail(notAtFault, "codec: %v", err)
		return coding{}
	}
	return coding{
		feedback: compress.NewFeedback(codec, c.layout, c.cfg.Seed), open: make(map[kintsugi.PushID]*message), left: make([]float64, c.layout.Values),
	}
}

// encodes reports whether gradients of the worker are encoded.
func (h *hand) encodes() bool { return h.coding.feedback != nil }

// begin begins the message of a gradient.
func (h *hand) begin(id kintsugi.PushID) *message {
	x, layout := &h.coding, h.c.layout
	m := &message{payloads: make([]uint64, len(layout.Chunks)), left: make([]float64, layout.Values), hashes: h.gradient(id)}
	x.book.Begin(id)
	x.open[id] = m
	if h.c.encoded[id] == nil {
		h.c.encoded[id] = make([]uint64, len(layout.Chunks))
	}
	delete(h.c.returned, id) // it begins anew, with the residual that has come back
	return m
}

// encode encodes one chunk of a gradient.
func (h *hand) encode(id kintsugi.PushID, m *message, i kintsugi.ChunkID) {
	x, chunk, hash := &h.coding, h.c.layout.Chunks[i], m.hashes[i]
	gradient, decoded := make([]float32, chunk.Len()), make([]float32, chunk.Len())
	for k := range gradient {
		hash = mix(hash, uint64(k))
		gradient[k] = float32(int(hash>>57) - 64)
	}
	payload := x.feedback.Encode(nil, id, i, gradient)
	if err := kernels.Host.Decode(decoded, x.feedback.Codec().Encoding(), payload); err != nil {
		h.c.fail(notAtFault, "decode %v: %v", id, err)
	}
	m.payloads[i] = uint64(len(payload))
	for _, b := range payload {
		m.payloads[i] = mix(m.payloads[i], uint64(b))
	}
	for k := range gradient {
		m.left[chunk.Lo+k] = float64(gradient[k]) - float64(decoded[k])
	}
	was := &h.c.encoded[id][i]
	if *was != 0 && *was != m.payloads[i] {
		h.c.fail(conserved, "chunk %d of %v@%d is encoded to %x, and was to %x", i, id, id.Incarnation, m.payloads[i], *was)
	}
	*was = m.payloads[i]
}

// whole makes the message of a gradient.
func (h *hand) whole(id kintsugi.PushID) *message {
	m := h.begin(id)
	for i := range m.payloads {
		h.encode(id, m, kintsugi.ChunkID(i))
	}
	return m
}

// settleFate adopts or takes back the residual of a push. guess: the fate was inferred, not
// reported.
func (h *hand) settleFate(f fates.Fate, guess bool) {
	x, c := &h.coding, h.c
	m := x.open[f.Push]
	if m == nil {
		return
	}
	x.book.Settle(f.Push)
	delete(x.open, f.Push)
	c.checkFate(h, f, guess)
	if !f.Counted {
		x.feedback.Dropped(f.Push)
	} else {
		x.feedback.Counted(f.Push)
		for i, v := range m.left {
			x.left[i] += v
		}
	}
	c.checkResidual(h)
}

// checkFate checks a worker's opinion of the fate of a push.
func (c *Cluster) checkFate(h *hand, f fates.Fate, guess bool) {
	counted, at := c.keeps(f.Push, h.session.line)
	switch {
	case f.Counted && counted:
		c.residuals.Adopted++
	case f.Counted && !guess:
		c.fail(conserved, "%s takes %v for counted, which it is not", h.name, f.Push)
	case f.Counted: // its part of the residual is lost
		c.residuals.Lost++
	case counted:
		c.fail(conserved, "%s takes back what %v has brought, which is counted in step %d", h.name, f.Push, at)
	default:
		c.residuals.Returned++
		if f.Push.Line == h.session.line {
			c.returned[f.Push] = true
		}
	}
}

// keeps reports whether a push is counted on a line or on those that it continues, and in which
// step.
func (c *Cluster) keeps(id kintsugi.PushID, line kintsugi.Line) (bool, kintsugi.Step) {
	h := c.oracle.lines[id.Line]
	if h == nil {
		return false, 0
	}
	at, counted := h.counted[id]
	for next := id.Line + 1; next <= line; next++ {
		if b := c.oracle.begun[next]; b != nil {
			counted = counted && at <= b.step
		}
	}
	return counted, at
}

// checkResidual checks that a worker's residual is what was left out of its counted pushes.
func (c *Cluster) checkResidual(h *hand) {
	got := make([]float32, c.layout.Values)
	h.coding.feedback.Save(got)
	for i, v := range got {
		if want := h.coding.left[i]; float64(v) != want {
			c.fail(conserved, "%s keeps a residual of %v at value %d, want %v", h.name, v, i, want)
			return
		}
	}
}

// ResidualResult says what became of the encoded pushes of all workers.
type ResidualResult struct {
	Adopted  int // counted, and their residuals were adopted
	Returned int // not counted, and their residuals were taken back
	Lost     int // not counted, but taken for counted as nobody could say: their part of the residual is lost
	GivenUp  int // residuals that were given up with their line
}

// takeIn settles the fates that the session has heard.
func (s *session) takeIn() {
	heard := s.asking.heard
	s.asking.heard = nil
	for _, f := range heard {
		s.h.settleFate(f, false)
	}
}

// resume asks for the fates of the pushes of the last session, and continues with the first
// gradient on a version.
func (s *session) resume(id kintsugi.PushID) {
	x := &s.h.coding
	s.asking.expects = make(map[kintsugi.PushID]bool)
	j := x.book.Join(*s.view, id.Version)
	for _, f := range j.Settled {
		s.h.settleFate(f, true)
	}
	if j.GivenUp {
		x.feedback.Drop()
		clear(x.open)
		clear(x.left)
		s.c.residuals.GivenUp++
	}
	switch s.c.cfg.plant {
	case ticketAlone:
		for i := range j.Ask {
			j.Ask[i].Send = false
		}
	case takenBack:
		for _, q := range j.Ask {
			if q.Send {
				x.book.Void(q.Push)
			}
		}
		j.Ask = slices.DeleteFunc(j.Ask, func(q fates.Question) bool { return q.Send })
	}
	s.asking.ask, s.asking.from = j.Ask, id
	s.askOn()
}

// askOn repeats tickets up to the next push that must be sent again, and sends that. After the last
// one it continues.
func (s *session) askOn() {
	a := &s.asking
	for len(a.ask) > 0 && !a.ask[0].Send {
		s.askAbout(s.h.coding.open[a.ask[0].Push].ticket)
		a.ask = a.ask[1:]
	}
	switch {
	case len(a.ask) > 0:
		s.sendPush(a.ask[0].Push, s.h.coding.open[a.ask[0].Push].payloads, 0)
	case a.pushed:
		s.after(a.from)
	default:
		s.await(s.c.cfg.Consistency.Pace().Credit, func() { s.encodeTurn(a.from) })
	}
}

// tells sends the ticket of an encoded push. For a push that is sent again, the ticket is sent
// whatever the heads answer: if one has refused the push, t is the ticket of the session before.
func (s *session) tells(t kintsugi.Ticket) {
	s.askAbout(t)
	a := &s.asking
	if len(a.ask) == 0 {
		s.after(t.Push)
		return
	}
	if a.ask = a.ask[1:]; t.Push.Version == a.from.Version {
		a.from, a.pushed = t.Push, true
	}
	s.askOn()
}

// refusedAgain continues after a head has refused a push that was sent again. It returns false for
// other pushes. These stay open until their version is passed: if the session breaks before, the
// same bytes are sent again.
func (s *session) refusedAgain(r kintsugi.Refused) bool {
	if len(s.asking.ask) == 0 {
		return false
	}
	s.newest = max(s.newest, r.Step)
	s.tells(s.h.coding.open[r.Push].ticket)
	return true
}

// askAbout sends the ticket of a push that every head has.
func (s *session) askAbout(t kintsugi.Ticket) {
	x := &s.h.coding
	x.open[t.Push].ticket = t
	x.book.Ask(t.Push, t.Views[0])
	s.asking.expects[t.Push] = true
	s.work.send(t)
	if s.c.cfg.Faults.Has(Repeat) && s.c.storming() && s.c.chance(0.05) {
		s.work.send(t)
	}
}

// encodeTurn pushes the gradient that id names, with its earlier encoding if there is one.
func (s *session) encodeTurn(id kintsugi.PushID) {
	s.takeIn()
	for _, f := range s.h.coding.book.Pass(id.Version) {
		s.h.settleFate(f, false)
	}
	if s.h.leaving {
		s.await(1, func() { s.sayGoodbye() })
		return
	}
	if m := s.h.coding.open[id]; m != nil {
		s.sendPush(id, m.payloads, 0)
		return
	}
	if s.flows() {
		s.flow(id)
		return
	}
	s.c.after(s.h.proc, s.c.computeTime(s.h.slot), func() {
		if !s.over {
			s.sendPush(id, s.h.whole(id).payloads, 0)
		}
	})
}
