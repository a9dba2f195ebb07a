package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// source is where the parameters of one shard that has chunks come from. Its stream is used by one
// goroutine at a time.
type source struct {
	layout *kintsugi.Layout
	line   kintsugi.Line
	id     kintsugi.ShardID
	chunks kintsugi.ChunkRange
	frames []kintsugi.ChunkRange
	read   *transport.ReadClient
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
type peers map[kintsugi.ServerID]*transport.Peer

func (p peers) to(m kintsugi.Member) (*transport.Peer, error) {
	if x := p[m.Server]; x != nil {
		return x, nil
	}
	x, err := transport.Dial(m.Address)
	if err == nil {
		p[m.Server] = x
	}
	return x, err
}

func (p peers) close() {
	for _, x := range p {
		_ = x.Close() // its streams end; there is nothing left to lose
	}
}

// Pull fetches the newest released version of a view, the same from all shards, and returns its step.
// params has Layout.Values values; after an error they are undefined.
func Pull(ctx context.Context, l *kintsugi.Layout, v kintsugi.View, params []float32) (kintsugi.Step, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns := make(peers)
	defer conns.close()
	var from []*source
	for _, s := range sources(l, v) {
		p, err := conns.to(v.Head(s.id))
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

// atOnce runs f for every element in a goroutine of its own, waits for all and returns their errors.
func atOnce[T any](list []T, f func(i int, x T) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, x := range list {
		wg.Go(func() { errs[i] = f(i, x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// read lands one version of at least atLeast, the same from all shards, in params.
func read(from []*source, params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	have := make([]kintsugi.Step, len(from))
	got := make([]bool, len(from))
	for {
		err := atOnce(from, func(i int, x *source) (err error) {
			if got[i] && have[i] >= atLeast {
				return nil
			}
			have[i], err = x.answer(params, atLeast)
			got[i] = true
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
		atLeast = newest
	}
}

// answer asks the shard and lands its answer.
func (x *source) answer(params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if err := x.read.Send(transport.ReadRequest{Line: x.line, Shard: x.id, AtLeast: atLeast}); err != nil {
		if _, status := x.read.Recv(); status != nil {
			err = status
		}
		return 0, fmt.Errorf("read shard %d: %w", x.id, err)
	}
	version := kintsugi.Step(0)
	for i, want := range x.frames {
		f, err := x.read.Recv()
		if err != nil {
			return 0, fmt.Errorf("read shard %d: %w", x.id, err)
		}
		if f.Kind != transport.KindParameters || f.Codec != 0 || f.Shard != x.id || f.Chunks != want || f.Push.Line != x.line || (i > 0 && f.Push.Version != version) {
			f.Release()
			return 0, fmt.Errorf("%w: shard %d answered a read with chunks [%d, %d) of version %d, want [%d, %d)",
				kintsugi.ErrCorrupt, x.id, f.Chunks.Lo, f.Chunks.Hi, f.Push.Version, want.Lo, want.Hi)
		}
		version = f.Push.Version
		lo, hi := x.layout.Span(want)
		err = f.CopyTo(kernels.Bytes(params[lo:hi]))
		f.Release()
		if err != nil {
			return 0, fmt.Errorf("read shard %d: %w", x.id, err)
		}
	}
	return version, nil
}
