package ckpt

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// chain is a value of several records while it is read. It holds memory for one chunk until the
// value is placed.
type chain struct {
	left   int // records that have not been read
	broken bool
	step   kintsugi.Step // of the values so far
	params []float32
	speed  []float32 // velocity; nil: the values do not coast
	state  [2][]float32
}

// values reads values and places each when its last record has been read. It calls bad once for
// each value that is not whole. If bad returns an error, the reading ends with it.
//
// The names of segments ascend with the steps of their values, and so do the records of a value. So
// one pass over the segments finds the records in order.
func (r *reader) values(ctx context.Context, list []value, bad func(located, error) error) error {
	r.chains = make(map[kintsugi.ChunkID]*chain)
	var records []located
	for _, v := range list {
		records = append(records, v...)
		if len(v) > 1 {
			r.chains[v[0].Chunk] = &chain{left: len(v)}
		}
	}
	return r.read(ctx, records, func(l located, err error) error {
		if c := r.chains[l.Chunk]; c != nil {
			if c.broken {
				return nil
			}
			*c = chain{broken: true}
		}
		return bad(l, err)
	})
}

// follow adds the next record of a chain to its value, and places the value if it is complete.
func (r *reader) follow(c *chain, l located, h recordHeader, b []byte) (wrong, err error) {
	switch {
	case c.broken:
		return nil, nil
	case !h.Increment:
		c.begin(h, b[headerBytes:])
	default:
		if err := c.add(h, b); err != nil {
			return damaged(l.file, l.Offset, "%w", err), nil
		}
	}
	if c.step, c.left = h.Step, c.left-1; c.left > 0 {
		return nil, nil
	}
	to, err := r.place(ChunkInfo{
		Chunk: h.Chunk, Line: h.Line, Step: h.Step, Optimizer: h.Optimizer, Rule: h.Rule, Values: h.Values, StateArrays: h.Arrays, Velocity: c.speed,
	})
	if err != nil {
		return nil, err
	}
	from := [...][]float32{c.params, c.state[0], c.state[1]}
	for i, dst := range [...][]float32{to.Params, to.State[0], to.State[1]} {
		switch {
		case dst == nil:
			continue
		case i > h.Arrays:
			return nil, wrongArrays(h, i)
		case len(dst) != h.Values:
			return nil, wrongPlace(h, i, len(dst))
		}
		copy(dst, from[i])
	}
	delete(r.chains, h.Chunk)
	return nil, nil
}

// begin sets the value to that of a whole record, given without its header.
func (c *chain) begin(h recordHeader, b []byte) {
	arrays := [1 + len(c.state)]*[]float32{&c.params, &c.state[0], &c.state[1]}
	for i, a := range arrays[:1+h.Arrays] {
		*a = make([]float32, h.Values)
		copy(kernels.Bytes(*a), b[4*h.Values*i:])
	}
}

// add adds an increment, which checkRecord has accepted.
func (c *chain) add(h recordHeader, b []byte) error {
	inc, err := parseIncrement(b, h)
	if err != nil {
		return err
	}
	if h.Coasts && c.speed == nil {
		c.speed = make([]float32, h.Values)
	}
	m := Moving{Params: c.params, Velocity: c.speed}
	if inc.Base != c.step || len(c.params) != h.Values || inc.BaseSum != m.sum() {
		return fmt.Errorf("it adds to values of step %d with checksum %08x; those before it are %d of step %d with %08x",
			inc.Base, inc.BaseSum, len(c.params), c.step, m.sum())
	}
	difference := make([]float32, h.Values)
	at := headerBytes + incrementBytes
	coded := b[at : at+codedBytes(h.Encoding, h.Values)]
	if err := kernels.Best().Decode(difference, h.Encoding, coded); err != nil {
		return err
	}
	inc.apply(m, difference)
	if got := m.sum(); got != inc.Sum {
		return fmt.Errorf("the values that come out have checksum %08x, it says %08x", got, inc.Sum)
	}
	at += len(coded)
	for i := range h.Arrays {
		if err := kernels.Best().Decode(c.state[i], kernels.BF16, b[at:at+2*h.Values]); err != nil {
			return err
		}
		at += 2 * h.Values
	}
	return nil
}

func wrongArrays(h recordHeader, need int) error {
	return fmt.Errorf("chunk %d was saved by rule %d with %d state arrays, the run needs %d: restore parameters only, or use the rule of the checkpoint: %w",
		h.Chunk, h.Rule, h.Arrays, need, kintsugi.ErrOtherModel)
}

func wrongPlace(h recordHeader, array, have int) error {
	return fmt.Errorf("chunk %d has %d values, array %d of its place %d: %w", h.Chunk, h.Values, array, have, kintsugi.ErrUsage)
}
