package machine

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// CodecRow is the result of CodecSpeed for one operation.
type CodecRow struct {
	bench.Row
	BytesPerValue  float64 `json:"bytes_per_value,omitempty"` // of the payload
	GradientGBPerS float64 `json:"gradient_gb_per_s"`         // of the gradient's float32 values, so that codecs can be compared; for a checksum, of the summed bytes
}

// CodecSpeed measures the cost of making gradients smaller, beside loops that only move the same
// bytes. For each size, number of threads and codec, with the device and rounds of cfg, it
// measures: encoding alone; encoding as in a worker, with the residual of the previous push;
// decoding; the check of a received payload; and, for top-k, the selection alone. Then it compares
// the checksum of a frame with that of the standard library. It ignores the fields of cfg about the
// gradients of a step.
func CodecSpeed(ctx context.Context, cfg KernelsConfig, codecs []compress.Codec) ([]CodecRow, error) {
	var rows []CodecRow
	for _, size := range cfg.Sizes {
		for _, threads := range cfg.Threads {
			b := codecBench{kernelsBench{cfg: &cfg, arena: newArena(size, threads)}}
			for _, group := range b.groups(codecs) {
				fmt.Fprintf(cfg.Progress, "%s, %d bytes, %d threads\n", group.name, size, threads)
				b.reset()
				timed, shown := group.build()
				got, err := bench.Interleave(ctx, cfg.Pairs, cfg.AtLeast, timed)
				if err != nil {
					return nil, err
				}
				for _, r := range got[:shown] {
					rows = append(rows, CodecRow{Row: r, BytesPerValue: group.bytesPerValue, GradientGBPerS: 4 * float64(r.Elements) / r.Seconds / 1e9})
				}
			}
		}
	}
	return rows, nil
}

type codecBench struct{ kernelsBench }

// codecGroup is the operations of one codec.
type codecGroup struct {
	group
	bytesPerValue float64 // known after building
}

func (b *codecBench) groups(codecs []compress.Codec) []*codecGroup {
	var all []*codecGroup
	if b.cfg.Goals && 4*b.values(arraysOfACodec) < cacheBytes {
		codecs = nil
	}
	for _, c := range codecs {
		g := &codecGroup{}
		g.group = group{c.Name(), func() (timed []*bench.Timed, shown int) {
			timed, shown, g.bytesPerValue = b.codec(c)
			return timed, shown
		}}
		all = append(all, g)
	}
	if b.cfg.Goals && 4*b.values(2) >= cacheBytes {
		return all
	}
	return append(all, &codecGroup{group: group{"checksums", b.checksums}})
}

// coded is a gradient, its payloads, and the other arrays that an encoder with feedback reads and
// writes.
type coded struct {
	codec              compress.Codec
	values, n          int // in all chunks, in one chunk
	x, carry, residual []float32
	payload            [][]byte // by chunk
	other              [][]byte // of the same length, to write to; may become longer if other indices are selected
}

const (
	rowLen         = tile
	arraysOfACodec = 4 // the gradient, two residuals and at most one array of payloads
)

func (b *codecBench) codec(c compress.Codec) (timed []*bench.Timed, shown int, bytesPerValue float64) {
	values := b.values(arraysOfACodec)
	d := &coded{codec: c, values: values, n: b.chunk(values), x: b.filled(values), carry: b.filled(values), residual: b.filled(values)}
	room := c.MaxBytes(d.n, rowLen)
	memory, other, sizes := b.takeBytes(room*(values/d.n)), b.takeBytes(room*(values/d.n)), 0
	for i := range values / d.n {
		p := c.Encode(memory[i*room:][:0:room], d.cut(d.x, i), nil, rowLen, 1)
		d.payload = append(d.payload, p)
		d.other = append(d.other, other[i*room:][:len(p):room])
		sizes += len(p)
	}
	var bounds []*bench.Timed
	add := func(t *bench.Timed, bound []*bench.Timed) {
		timed, bounds = append(timed, t), append(bounds, bound...)
	}
	if !b.cfg.Goals {
		add(b.encode(d))
	}
	if c.Feedback() {
		add(b.feedback(d))
	}
	if e := c.Encoding(); e == kernels.Sparse16 || e == kernels.Sparse32 {
		add(b.selection(d, false))
		add(b.selection(d, true))
	}
	if !b.cfg.Goals {
		add(b.decode(d))
		add(b.check(d))
	}
	return append(timed, bounds...), len(timed), float64(sizes) / float64(values)
}

func (d *coded) cut(x []float32, chunk int) []float32 { return x[chunk*d.n:][:d.n:d.n] }

// operation returns an operation over all chunks, and its bounds. The bounds move the bytes of the
// given arrays and, if the operation reads or writes them, of the payloads. A bound leaves garbage
// in the arrays that it writes.
func (b *codecBench) operation(d *coded, name, variant string, reads, writes [][]float32, payload int, run func(chunk int)) (*bench.Timed, []*bench.Timed) {
	m := &moved{values: d.values}
	for _, x := range reads {
		b.move(&m.reads, kernels.Bytes(x), d.values)
	}
	for _, x := range writes {
		b.move(&m.writes, kernels.Bytes(x), d.values)
	}
	switch payload {
	case isRead:
		m.reads = appendEach(m.reads, d.payload)
	case isWritten:
		m.writes = appendEach(m.writes, d.other)
	}
	bound, bytes := m.bound(name, b.threads), m.bytes()
	return &bench.Timed{
		Row:   b.row(name, variant, d.codec.Name(), 1, d.values, bytes),
		Run:   func(times int) { spread(b.threads, len(d.payload), times, run) },
		Bound: bench.Fastest(bytes, bound...),
	}, bound
}

// How an operation uses the payloads.
const (
	isUnused = iota
	isRead
	isWritten
)

// appendEach appends the array of each chunk to those of that chunk.
func appendEach(pieces [][][]byte, arrays [][]byte) [][][]byte {
	if pieces == nil {
		pieces = make([][][]byte, len(arrays))
	}
	for c := range arrays {
		pieces[c] = append(pieces[c], arrays[c])
	}
	return pieces
}

func (b *codecBench) encode(d *coded) (*bench.Timed, []*bench.Timed) {
	return b.operation(d, "encode", "alone", [][]float32{d.x}, nil, isWritten, func(c int) {
		d.codec.Encode(d.other[c][:0], d.cut(d.x, c), nil, rowLen, 1)
	})
}

// feedback encodes as a worker does: each push gets the residual of the one before, and all pushes
// are counted.
func (b *codecBench) feedback(d *coded) (*bench.Timed, []*bench.Timed) {
	layout := &kintsugi.Layout{Values: d.values, Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{d.values / rowLen, rowLen}}}}
	for lo := 0; lo < d.values; lo += d.n {
		layout.Chunks = append(layout.Chunks, kintsugi.Chunk{Lo: lo, Hi: lo + d.n})
	}
	f := compress.NewFeedback(d.codec, layout, 1)
	id := kintsugi.PushID{}
	t, bound := b.operation(d, "encode", "feedback", [][]float32{d.x, d.carry}, [][]float32{d.residual}, isWritten, nil)
	t.Run = func(times int) {
		for range times {
			id.Sequence++
			spread(b.threads, len(d.payload), 1, func(c int) {
				f.Encode(d.other[c][:0], id, kintsugi.ChunkID(c), d.cut(d.x, c))
			})
			f.Counted(id)
		}
	}
	return t, bound
}

// selection selects as many values as the payloads contain.
func (b *codecBench) selection(d *coded, feedback bool) (*bench.Timed, []*bench.Timed) {
	index, value := make([][]int32, len(d.payload)), make([][]float32, len(d.payload))
	for c, p := range d.payload {
		k, _ := binary.Uvarint(p)
		index[c], value[c] = make([]int32, k), make([]float32, k)
	}
	variant, reads, writes := "alone", [][]float32{d.x}, [][]float32(nil)
	if feedback {
		variant, reads, writes = "feedback", [][]float32{d.x, d.carry}, [][]float32{d.residual}
	}
	return b.operation(d, "select", variant, reads, writes, isUnused, func(c int) {
		var carry, residual []float32
		if feedback {
			carry, residual = d.cut(d.carry, c), d.cut(d.residual, c)
		}
		b.cfg.Device.Select(index[c], value[c], d.cut(d.x, c), carry, residual)
	})
}

func (b *codecBench) decode(d *coded) (*bench.Timed, []*bench.Timed) {
	return b.operation(d, "decode", "alone", nil, [][]float32{d.residual}, isRead, func(c int) {
		b.cfg.Device.Decode(d.cut(d.residual, c), d.codec.Encoding(), d.payload[c])
	})
}

func (b *codecBench) check(d *coded) (*bench.Timed, []*bench.Timed) {
	return b.operation(d, "check", "alone", nil, nil, isRead, func(c int) {
		kernels.Check(d.codec.Encoding(), d.n, d.payload[c])
	})
}

// checksums checks and copies frames, with the checksum of package kernels and with that of the
// standard library.
func (b *codecBench) checksums() (timed []*bench.Timed, shown int) {
	values := b.values(2)
	n := b.chunk(values)
	src, dst := kernels.Bytes(b.filled(values)), kernels.Bytes(b.filled(values))
	table := crc32.MakeTable(crc32.Castagnoli)
	var bounds []*bench.Timed
	for _, o := range []struct {
		name        string
		copies      bool
		ours, other func(dst, src []byte)
	}{
		{"crc32c", false, func(_, src []byte) { kernels.CRC32C(0, src) }, func(_, src []byte) { crc32.Update(0, table, src) }},
		{"copy and crc32c", true, func(dst, src []byte) { kernels.CopyCRC32C(0, dst, src) }, func(dst, src []byte) { crc32.Update(0, table, src); copy(dst, src) }},
	} {
		m := &moved{values: values}
		b.move(&m.reads, src, values)
		if o.copies {
			b.move(&m.writes, dst, values)
		}
		bound, bytes := m.bound(o.name, b.threads), m.bytes()
		bounds = append(bounds, bound...)
		add := func(variant string, f func(dst, src []byte), over *bench.Timed) *bench.Timed {
			t := &bench.Timed{
				Row: b.row(o.name, variant, "bytes", 1, values, bytes), Bound: bench.Fastest(bytes, bound...), Over: over,
				Run: func(times int) {
					spread(b.threads, values/n, times, func(c int) { f(dst[4*c*n:][:4*n], src[4*c*n:][:4*n]) })
				},
			}
			timed = append(timed, t)
			return t
		}
		add("folded", o.ours, add("hash/crc32", o.other, nil))
	}
	return append(timed, bounds...), len(timed)
}
