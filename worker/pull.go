package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// PullForm is the form in which a worker reads parameters.
type PullForm uint8

// The forms of reading.
const (
	PullFP32  PullForm = iota // all parameters, exactly
	PullBF16                  // all parameters, rounded to bfloat16: gradients are computed on the rounded values
	PullDelta                 // exactly, and only what differs from the version that the worker already has
)

// ParsePull parses the name that PullForm.String returns. Other names are an ErrUsage.
func ParsePull(text string) (PullForm, error) {
	for p := PullFP32; p <= PullDelta; p++ {
		if p.String() == text {
			return p, nil
		}
	}
	return 0, fmt.Errorf("%w: pull %q is unknown; use fp32, bf16 or delta", kintsugi.ErrUsage, text)
}

// String returns the name of p on the command line.
func (p PullForm) String() string { return [...]string{"fp32", "bf16", "delta"}[p] }

// source reads the parameters of one shard. The shard has chunks. Only one goroutine at a time uses
// its stream.
type source struct {
	layout *kintsugi.Layout
	line   kintsugi.Line
	id     kintsugi.ShardID
	chunks kintsugi.ChunkRange
	frames []kintsugi.ChunkRange
	read   *transport.ReadClient

	pull   PullForm
	device kernels.Device // decodes payloads that are not float32
	room   []byte         // scratch for a payload before it is decoded
	// PullDelta: the version that a destination array holds completely, by the address of its first
	// value.
	holds   map[*float32]kintsugi.Step
	changes bool // the next answer has only what has changed
}

// sources returns a source, without a stream, for every shard of a view that has chunks.
func sources(l *kintsugi.Layout, v kintsugi.View) []source {
	var list []source
	for i, chunks := range l.Split(len(v.Chains)) {
		if chunks.Lo < chunks.Hi {
			list = append(list, source{layout: l, line: v.Line, id: kintsugi.ShardID(i), chunks: chunks, frames: transport.Frames(l, chunks)})
		}
	}
	return list
}

// peers holds the connections to the servers of a view. They are opened on first use. Sessions that
// follow each other use the same: to connect takes two round trips, three with TLS, and a connection
// that has carried a model before takes fewer to carry it again.
type peers struct {
	tls    *mtls.Credentials // nil: plain TCP
	window int               // in bytes, see Config.Window
	open   map[kintsugi.Life]*transport.Peer
}

func newPeers(tls *mtls.Credentials, window int) *peers {
	return &peers{tls: tls, window: window, open: make(map[kintsugi.Life]*transport.Peer)}
}

// to returns the connection to a server. With near, messages go through pipes where possible.
func (p *peers) to(m kintsugi.Member, near bool) (*transport.Peer, error) {
	if x := p.open[m.Life()]; x != nil {
		return x, nil
	}
	x, err := transport.Dial(m.Address, transport.DialTLS(p.tls, m.Server), transport.DialWindow(p.window))
	if err != nil {
		return nil, err
	}
	if near {
		x.Near()
	}
	p.open[m.Life()] = x
	return x, nil
}

// keep closes the connections that a session with these servers does not use: those to other servers
// or to earlier lives, and those that are lost, to which a new one is quicker than one that waits
// before it tries again.
func (p *peers) keep(servers []kintsugi.Member) {
	for l, x := range p.open {
		if !x.Connected() || !slices.ContainsFunc(servers, func(m kintsugi.Member) bool { return m.Life() == l }) {
			delete(p.open, l)
			_ = x.Close()
		}
	}
}

func (p *peers) close() {
	for _, x := range p.open {
		_ = x.Close() // this ends the streams; nothing is lost
	}
	clear(p.open)
}

// Pull reads the newest released version of a view into params, the same version from all shards,
// and returns its step. params has Layout.Values values; after an error its contents are undefined.
// tls secures the connections; nil means plain TCP. Pull opens its own connections and closes them
// before it returns.
func Pull(ctx context.Context, tls *mtls.Credentials, l *kintsugi.Layout, v kintsugi.View, params []float32) (kintsugi.Step, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns := newPeers(tls, 0)
	defer conns.close()
	var from []*source
	var heads []*transport.Peer
	for _, s := range sources(l, v) {
		p, err := conns.to(v.Head(s.id), false)
		if err != nil {
			return 0, err
		}
		from, heads = append(from, &s), append(heads, p)
	}
	// All at once: each waits for its connection.
	err := each(from, true, func(i int, s *source) (err error) {
		s.read, err = heads[i].Read(ctx)
		return err
	})
	if err != nil {
		return 0, err
	}
	return read(from, params, v.RestoreStep)
}

// each calls f for every element and returns the joined errors. With atOnce, each call has a
// goroutine of its own. Otherwise the calls follow one another, until the first error. Where f
// mostly waits for a message that all shards send at about the same time, a goroutine costs more
// than it saves.
func each[T any](list []T, atOnce bool, f func(i int, x T) error) error {
	errs := make([]error, len(list))
	if !atOnce {
		for i, x := range list {
			if errs[i] = f(i, x); errs[i] != nil {
				break
			}
		}
		return errors.Join(errs...)
	}
	var wg sync.WaitGroup
	for i, x := range list {
		wg.Go(func() { errs[i] = f(i, x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// read reads one version of at least atLeast, the same from all shards, into params.
func read(from []*source, params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if err := ask(from, params, atLeast, false); err != nil {
		return 0, err
	}
	return land(from, params, atLeast)
}

// ask requests a version of at least atLeast from every shard. land must be called next, with the
// same params. With unreleased, version atLeast itself may come before it is released: the caller
// uses it when the conductor has said that it is.
func ask(from []*source, params []float32, atLeast kintsugi.Step, unreleased bool) error {
	return each(from, false, func(_ int, x *source) error { return x.ask(params, atLeast, unreleased) })
}

// land receives the answers into params. It repeats requests until all shards have answered with
// the same version.
func land(from []*source, params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	have := make([]kintsugi.Step, len(from))
	asked := true // every shard was asked
	for {
		err := each(from, large(from), func(i int, x *source) (err error) {
			if have[i] >= atLeast && !asked {
				return nil
			}
			if !asked {
				if err := x.ask(params, atLeast, false); err != nil {
					return err
				}
			}
			have[i], err = x.land(params)
			return err
		})
		if err != nil {
			return 0, err
		}
		// Shards are at most one step apart. Shards that answered with an older version are asked
		// again.
		newest := slices.Max(have)
		if slices.Min(have) == newest {
			return newest, nil
		}
		atLeast, asked = newest, false
	}
}

// fewValues is the number of values below which handing work to other threads takes longer than the
// work itself.
const fewValues = 1 << 17

// large reports whether the shards are large enough for a thread each.
func large[S interface{ values() int }](list []S) bool {
	return slices.ContainsFunc(list, func(x S) bool { return x.values() > fewValues })
}

// values returns the number of values of the shard.
func (x *source) values() int {
	lo, hi := x.layout.Span(x.chunks)
	return hi - lo
}

// ask requests a version of at least atLeast from the shard, to be received into params.
func (x *source) ask(params []float32, atLeast kintsugi.Step, unreleased bool) error {
	q := transport.ReadRequest{Line: x.line, Shard: x.id, AtLeast: atLeast, Unreleased: unreleased}
	x.changes = false
	switch x.pull {
	case PullBF16:
		q.Form = transport.ReadHalves
	case PullDelta:
		if q.Have, x.changes = x.holds[&params[0]]; x.changes {
			q.Form = transport.ReadChanges
			delete(x.holds, &params[0]) // until the answer has arrived completely
		}
	}
	err := x.read.Send(q)
	if err == nil {
		return nil
	}
	if _, status := x.read.Recv(); status != nil {
		err = status
	}
	return fmt.Errorf("read shard %d: %w", x.id, err)
}

// land receives the answer into params.
func (x *source) land(params []float32) (version kintsugi.Step, err error) {
	if x.changes {
		version, err = x.landChanges(params)
	} else {
		version, err = x.landFrames(params, 0, len(x.frames), 0)
	}
	if err == nil {
		x.done()
	}
	if x.pull == PullDelta && err == nil {
		x.holds[&params[0]] = version
	}
	return version, err
}

// done tells the shard that the worker no longer reads the answer, if the answer lies in the
// shard's memory. For a small shard this is not worth a message: the next read implies it, and the
// shard uses another buffer until then.
func (x *source) done() {
	if x.read.Borrows() && x.values() > fewValues {
		_ = x.read.Send(transport.ReadRequest{Line: x.line, Shard: x.id, Form: transport.ReadDone}) // the next read reports an error
	}
}

// landFrames receives frames [first, end) of a complete answer. If first is not 0, they must be of
// the given version.
func (x *source) landFrames(params []float32, first, end int, version kintsugi.Step) (kintsugi.Step, error) {
	for i := first; i < end; i++ {
		f, err := x.read.Recv()
		if err != nil {
			return 0, fmt.Errorf("read shard %d: %w", x.id, err)
		}
		if want := x.frames[i]; f.Chunks != want || (i > 0 && f.Push.Version != version) {
			f.Release()
			return 0, fmt.Errorf("%w: shard %d answered a read with chunks [%d, %d) of version %d, want [%d, %d)",
				kintsugi.ErrCorrupt, x.id, f.Chunks.Lo, f.Chunks.Hi, f.Push.Version, want.Lo, want.Hi)
		}
		version = f.Push.Version
		if err := x.landFrame(f, params); err != nil {
			return 0, err
		}
	}
	return version, nil
}

// landChanges receives an answer that consists of what has changed.
func (x *source) landChanges(params []float32) (kintsugi.Step, error) {
	for at := x.chunks.Lo; ; {
		f, err := x.read.Recv()
		if err != nil {
			return 0, fmt.Errorf("read shard %d: %w", x.id, err)
		}
		if f.Kind == transport.KindVersion && f.Shard == x.id && f.Push.Line == x.line {
			f.Release()
			return f.Push.Version, nil
		}
		if f.Chunks.Lo < at || f.Chunks.Hi > x.chunks.Hi {
			f.Release()
			return 0, fmt.Errorf("%w: shard %d answered a read with chunks [%d, %d) among its [%d, %d)",
				kintsugi.ErrCorrupt, x.id, f.Chunks.Lo, f.Chunks.Hi, x.chunks.Lo, x.chunks.Hi)
		}
		at = f.Chunks.Hi
		if err := x.landFrame(f, params); err != nil {
			return 0, err
		}
	}
}

// setNamed sets the values that a frame names.
func (x *source) setNamed(f *transport.Frame, params []float32) error {
	x.room = resize(x.room, int(f.Bytes))
	if err := f.CopyTo(x.room); err != nil {
		return err
	}
	rest := x.room
	for _, c := range x.layout.Chunks[f.Chunks.Lo:f.Chunks.Hi] {
		n, err := kernels.Check(kernels.Sparse32, c.Len(), rest)
		if err != nil {
			return fmt.Errorf("%w: %w", kintsugi.ErrCorrupt, err)
		}
		kernels.SetNamed(params[c.Lo:c.Hi], kernels.Sparse32, rest[:n])
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes are left of a frame of chunks [%d, %d)", kintsugi.ErrCorrupt, len(rest), f.Chunks.Lo, f.Chunks.Hi)
	}
	return nil
}

// landFrame copies or decodes an expected frame of chunks into params, and releases the frame.
func (x *source) landFrame(f *transport.Frame, params []float32) error {
	defer f.Release()
	codec, named := transport.Codec(0), transport.CodecOf(kernels.Sparse32, compress.Plain)
	switch {
	case x.pull == PullBF16:
		codec = transport.CodecOf(kernels.BF16, compress.Plain)
	case x.changes && f.Codec == named:
		codec = named
	}
	if f.Kind != transport.KindParameters || f.Codec != codec || f.Shard != x.id || f.Push.Line != x.line {
		return fmt.Errorf("%w: shard %d answered a read with a frame of kind %d and codec %d of shard %d on line %d", kintsugi.ErrCorrupt, x.id, f.Kind, f.Codec, f.Shard, f.Push.Line)
	}
	lo, hi := x.layout.Span(f.Chunks)
	err := error(nil)
	switch codec {
	case 0:
		err = f.CopyTo(kernels.Bytes(params[lo:hi]))
	case named:
		err = x.setNamed(f, params)
	default:
		x.room = resize(x.room, 2*(hi-lo))
		if err = f.CopyTo(x.room); err == nil {
			err = x.device.Decode(params[lo:hi], kernels.BF16, x.room)
		}
	}
	if over := x.read.Context().Err(); err != nil && f.Shared() != nil && over != nil {
		err = over // memory that a server lends is valid only while the stream lasts
	}
	if err != nil {
		return fmt.Errorf("read shard %d: %w", x.id, err)
	}
	return nil
}
