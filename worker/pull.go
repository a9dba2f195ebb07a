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

// PullForm is what travels of parameters.
type PullForm uint8

// The pulls.
const (
	PullFP32  PullForm = iota // all of them, exactly
	PullBF16                  // all of them, rounded to bfloat16: gradients are computed on rounded parameters
	PullDelta                 // exactly, the chunks that differ from those of the version that the worker has
)

// ParsePull reads what PullForm.String writes.
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

// source is where the parameters of one shard that has chunks come from. Its stream is used by one
// goroutine at a time.
type source struct {
	layout *kintsugi.Layout
	line   kintsugi.Line
	id     kintsugi.ShardID
	chunks kintsugi.ChunkRange
	frames []kintsugi.ChunkRange
	read   *transport.ReadClient

	pull    PullForm
	device  kernels.Device             // decodes what is not float32
	room    []byte                     // for a payload before it is decoded
	holds   map[*float32]kintsugi.Step // PullDelta: by the first value of what was landed in, the version that is whole there
	changes bool                       // the answer to come has the changes since
}

// sources returns the shards of a view that have chunks, without streams.
func sources(l *kintsugi.Layout, v kintsugi.View) []source {
	var list []source
	for i, chunks := range l.Split(len(v.Chains)) {
		if chunks.Lo < chunks.Hi {
			list = append(list, source{layout: l, line: v.Line, id: kintsugi.ShardID(i), chunks: chunks, frames: transport.Frames(l, chunks)})
		}
	}
	return list
}

// peers are the connections to the servers of a view, made when they are needed.
type peers struct {
	tls    *mtls.Credentials // nil: plain TCP
	window int               // bytes, as Config has it
	open   map[kintsugi.ServerID]*transport.Peer
}

func newPeers(tls *mtls.Credentials, window int) *peers {
	return &peers{tls: tls, window: window, open: make(map[kintsugi.ServerID]*transport.Peer)}
}

// to returns the connection to a server. near: messages go through pipes, where they can.
func (p *peers) to(m kintsugi.Member, near bool) (*transport.Peer, error) {
	if x := p.open[m.Server]; x != nil {
		return x, nil
	}
	x, err := transport.Dial(m.Address, transport.DialTLS(p.tls, m.Server), transport.DialWindow(p.window))
	if err != nil {
		return nil, err
	}
	if near {
		x.Near()
	}
	p.open[m.Server] = x
	return x, nil
}

func (p *peers) close() {
	for _, x := range p.open {
		_ = x.Close() // its streams end; there is nothing left to lose
	}
}

// Pull fetches the newest released version of a view, the same from all shards, and returns its
// step. tls is how servers are reached; nil: by plain TCP. params has Layout.Values values; after
// an error they are undefined.
func Pull(ctx context.Context, tls *mtls.Credentials, l *kintsugi.Layout, v kintsugi.View, params []float32) (kintsugi.Step, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns := newPeers(tls, 0)
	defer conns.close()
	var from []*source
	for _, s := range sources(l, v) {
		p, err := conns.to(v.Head(s.id), false)
		if err != nil {
			return 0, err
		}
		if s.read, err = p.Read(ctx); err != nil {
			return 0, err
		}
		from = append(from, &s)
	}
	return read(from, params, v.RestoreStep)
}

// each runs f for every element and returns the errors: at once, in a goroutine of its own for
// each, or one after the other. Where what f does is mostly to wait for the same message from each,
// a goroutine costs more than it saves.
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

// read lands one version of at least atLeast, the same from all shards, in params.
func read(from []*source, params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if err := ask(from, params, atLeast); err != nil {
		return 0, err
	}
	return land(from, params, atLeast)
}

// ask asks every shard for a version of at least atLeast, to land in params. land must follow.
func ask(from []*source, params []float32, atLeast kintsugi.Step) error {
	return each(from, false, func(_ int, x *source) error { return x.ask(params, atLeast) })
}

// land lands what was asked for, in params.
func land(from []*source, params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	have := make([]kintsugi.Step, len(from))
	asked := true // every shard was
	for {
		err := each(from, large(from), func(i int, x *source) (err error) {
			if have[i] >= atLeast && !asked {
				return nil
			}
			if !asked {
				if err := x.ask(params, atLeast); err != nil {
					return err
				}
			}
			have[i], err = x.land(params)
			return err
		})
		if err != nil {
			return 0, err
		}
		// Shards are at most a step apart. Whoever answered with less is asked for the newest again.
		newest := slices.Max(have)
		if slices.Min(have) == newest {
			return newest, nil
		}
		atLeast, asked = newest, false
	}
}

// fewValues is how many values of a shard are handled in less time than it takes to have other threads handle them.
const fewValues = 1 << 17

// large reports whether shards are worth a thread each.
func large[S interface{ values() int }](list []S) bool {
	return slices.ContainsFunc(list, func(x S) bool { return x.values() > fewValues })
}

// values returns how many values the shard has.
func (x *source) values() int {
	lo, hi := x.layout.Span(x.chunks)
	return hi - lo
}

// ask asks the shard for a version of at least atLeast, to land in params.
func (x *source) ask(params []float32, atLeast kintsugi.Step) error {
	q := transport.ReadRequest{Line: x.line, Shard: x.id, AtLeast: atLeast}
	x.changes = false
	switch x.pull {
	case PullBF16:
		q.Form = transport.ReadHalves
	case PullDelta:
		if q.Have, x.changes = x.holds[&params[0]]; x.changes {
			q.Form = transport.ReadChanges
			delete(x.holds, &params[0]) // until the answer has landed whole
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

// land lands the answer.
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

// done tells the shard that the answer is not read any more, where it lies in the shard's memory.
// Of a small shard that is worth no message: it hears of it with the next read, and has another
// buffer for its steps meanwhile.
func (x *source) done() {
	if x.read.Borrows() && x.values() > fewValues {
		_ = x.read.Send(transport.ReadRequest{Line: x.line, Shard: x.id, Form: transport.ReadDone}) // the next read says what is wrong
	}
}

// landFrames lands frames [first, end) of an answer with all chunks, which if first is not 0 are of the given version.
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

// landChanges lands an answer with the chunks that have changed.
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

// landFrame lands a frame of chunks that were expected, and releases it.
func (x *source) landFrame(f *transport.Frame, params []float32) error {
	defer f.Release()
	codec := transport.Codec(0)
	if x.pull == PullBF16 {
		codec = transport.CodecOf(kernels.BF16, compress.Plain)
	}
	if f.Kind != transport.KindParameters || f.Codec != codec || f.Shard != x.id || f.Push.Line != x.line {
		return fmt.Errorf("%w: shard %d answered a read with a frame of kind %d and codec %d of shard %d on line %d", kintsugi.ErrCorrupt, x.id, f.Kind, f.Codec, f.Shard, f.Push.Line)
	}
	lo, hi := x.layout.Span(f.Chunks)
	err := error(nil)
	if codec == 0 {
		err = f.CopyTo(kernels.Bytes(params[lo:hi]))
	} else {
		x.room = resize(x.room, 2*(hi-lo))
		if err = f.CopyTo(x.room); err == nil {
			err = x.device.Decode(params[lo:hi], kernels.BF16, x.room)
		}
	}
	if over := x.read.Context().Err(); err != nil && f.Shared() != nil && over != nil {
		err = over // what was lent is not kept for whose stream has ended
	}
	if err != nil {
		return fmt.Errorf("read shard %d: %w", x.id, err)
	}
	return nil
}
