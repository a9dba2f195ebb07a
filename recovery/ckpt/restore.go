package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// ChunkInfo says what a checkpoint holds of a chunk.
type ChunkInfo struct {
	Chunk       kintsugi.ChunkID
	Line        kintsugi.Line
	Step        kintsugi.Step // version of the values
	Optimizer   uint64        // optimizer steps the chunk had taken
	Rule        kintsugi.Rule
	Values      int // in each array
	StateArrays int
}

// Place returns where the values of a chunk go. Params and State must have ChunkInfo.Values values each;
// those that are nil are not wanted. A restore writes to them after it has verified the checksum of the
// whole chunk, never before.
type Place func(ChunkInfo) (Arrays, error)

// located is an entry of a shard manifest, and what the record found there must say of itself.
type located struct {
	Entry
	file string // segment, relative to the checkpoint's directory
	line kintsugi.Line
	rule kintsugi.Rule
}

// locate returns the entries of m for chunks in want.
func (m *ShardManifest) locate(want kintsugi.ChunkRange) []located {
	var list []located
	for _, e := range m.Chunks {
		if want.Lo <= e.Chunk && e.Chunk < want.Hi {
			list = append(list, located{Entry: e, file: m.Segments[e.Segment].File, line: m.Line, rule: m.Rule})
		}
	}
	return list
}

func inLayout(layout *kintsugi.Layout, want kintsugi.ChunkRange) error {
	if want.Lo > want.Hi || int(want.Hi) > len(layout.Chunks) {
		return fmt.Errorf("chunks [%d, %d) are not among the %d of the model: %w", want.Lo, want.Hi, len(layout.Chunks), kintsugi.ErrUsage)
	}
	return nil
}

// Restore reads the chunks in want from a full checkpoint, whatever the shards it was saved from. Each
// chunk is placed once, in no particular order.
//
// Errors: kintsugi.ErrOtherModel (the tensors differ), kintsugi.ErrCorrupt (a *Damage: file, offset,
// chunk, tensor; some chunks may have been placed already; restore all from an older checkpoint),
// and what place returns.
func Restore(ctx context.Context, fsys vfs.FS, dir string, m *RunManifest, layout *kintsugi.Layout, want kintsugi.ChunkRange, place Place) error {
	err := restore(ctx, fsys, dir, m, layout, want, place)
	if err != nil {
		return fmt.Errorf("restore checkpoint %s in %s: %w", m.Name(), dir, err)
	}
	return nil
}

func restore(ctx context.Context, fsys vfs.FS, dir string, m *RunManifest, layout *kintsugi.Layout, want kintsugi.ChunkRange, place Place) error {
	if err := m.Fits(layout); err != nil {
		return err
	}
	if err := inLayout(layout, want); err != nil {
		return err
	}
	var list []located
	for _, ref := range m.Shards {
		if ref.Hi <= want.Lo || want.Hi <= ref.Lo {
			continue
		}
		s, err := m.readShard(fsys, dir, ref)
		if err != nil {
			return err
		}
		list = append(list, s.locate(want)...)
	}
	if len(list) != int(want.Hi-want.Lo) {
		return damaged(m.Name(), -1, "it holds %d of the chunks [%d, %d)", len(list), want.Lo, want.Hi)
	}
	r := reader{fs: fsys, dir: dir, layout: layout, place: place}
	return r.read(ctx, list, func(_ located, err error) error { return err })
}

// RunningReport says what RestoreRunning found.
type RunningReport struct {
	// Missing are the chunks that were never saved on these lines, or of which no saved value is whole.
	Missing []kintsugi.ChunkID

	// Skipped says what was damaged and passed over for an older value.
	Skipped []error
}

// Lines are the lines [First, Last]. After a partial restore a run goes on, on a new line, with what it has in memory:
// what was saved on the lines before is as good then as what was saved on the newest, only older.
type Lines struct{ First, Last kintsugi.Line }

// RestoreRunning reads the newest saved value of each chunk in want, of whatever step on the lines: what
// partial recovery gives back after a loss. Values that are damaged are passed over for older ones.
// Each chunk is placed at most once.
//
// Errors are kintsugi.ErrOtherModel, those of the disk that may pass, and what place returns.
func RestoreRunning(ctx context.Context, fsys vfs.FS, dir string, lines Lines, layout *kintsugi.Layout, want kintsugi.ChunkRange, place Place) (RunningReport, error) {
	report, err := restoreRunning(ctx, fsys, dir, lines, layout, want, place)
	if err != nil {
		return report, fmt.Errorf("restore the newest chunks of lines %d to %d in %s: %w", lines.First, lines.Last, dir, err)
	}
	return report, nil
}

func restoreRunning(ctx context.Context, fsys vfs.FS, dir string, lines Lines, layout *kintsugi.Layout, want kintsugi.ChunkRange, place Place) (report RunningReport, err error) {
	if err := inLayout(layout, want); err != nil {
		return report, err
	}
	saved, skipped, err := savedValues(fsys, dir, lines, layout, want)
	report.Skipped = skipped
	if err != nil {
		return report, err
	}
	r := reader{fs: fsys, dir: dir, layout: layout, place: place}
	ids := make([]kintsugi.ChunkID, 0, len(saved)) // still to be placed
	for id := want.Lo; id < want.Hi; id++ {
		ids = append(ids, id)
	}
	for age := 0; len(ids) > 0; age++ { // the newest values first; for those that are damaged, the ones before
		var list []located
		for _, id := range ids {
			if values := saved[id-want.Lo]; age < len(values) {
				list = append(list, values[age])
			} else {
				report.Missing = append(report.Missing, id)
			}
		}
		ids = ids[:0]
		err := r.read(ctx, list, func(l located, err error) error {
			if !errors.Is(err, kintsugi.ErrCorrupt) {
				return err
			}
			report.Skipped = append(report.Skipped, err)
			ids = append(ids, l.Chunk)
			return nil
		})
		if err != nil {
			return report, err
		}
	}
	slices.Sort(report.Missing)
	return report, nil
}

// savedValues returns, by chunk of want, all values that shard manifests of the lines name, newest first.
func savedValues(fsys vfs.FS, dir string, lines Lines, layout *kintsugi.Layout, want kintsugi.ChunkRange) (saved [][]located, skipped []error, err error) {
	names, err := listNames(fsys, dir, shardDir, parseShardName)
	if err != nil {
		return nil, nil, err
	}
	saved = make([][]located, want.Hi-want.Lo)
	for _, n := range slices.Backward(names) {
		if n.Line < lines.First || n.Line > lines.Last {
			continue
		}
		m, _, err := ReadShard(fsys, dir, path.Join(shardDir, n.shard()))
		if errors.Is(err, kintsugi.ErrCorrupt) {
			skipped = append(skipped, err)
			continue
		}
		if err != nil {
			return nil, skipped, err
		}
		if m.Fingerprint != Fingerprint(layout.Fingerprint()) {
			return nil, skipped, fmt.Errorf("%s has fingerprint %016x, the model has %016x: %w",
				m.File(), uint64(m.Fingerprint), layout.Fingerprint(), kintsugi.ErrOtherModel)
		}
		for _, l := range m.locate(want) {
			values := &saved[l.Chunk-want.Lo]
			l.Segment = 0 // an index into its own manifest: not part of what the value is
			if !slices.Contains(*values, l) {
				*values = append(*values, l)
			}
		}
	}
	for _, values := range saved {
		// A manifest with a greater name may still name an older value of a chunk.
		slices.SortStableFunc(values, func(a, b located) int { return cmp.Or(cmp.Compare(b.line, a.line), cmp.Compare(b.Step, a.Step)) })
	}
	return saved, skipped, nil
}

// windowBytes is how much of a segment is read at once, where chunks lie one behind the other. A guess:
// large enough for the read-ahead of a disk, small beside a shard.
const windowBytes = 4 << 20

// reader reads chunks out of segments.
type reader struct {
	fs     vfs.FS
	dir    string
	layout *kintsugi.Layout
	place  Place
	buffer []byte
}

// read places the chunks of list, which it sorts. bad is called for each chunk that cannot be read, and
// what it returns ends the reading unless it is nil.
func (r *reader) read(ctx context.Context, list []located, bad func(located, error) error) error {
	slices.SortFunc(list, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.Offset, b.Offset))
	})
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].file == list[0].file {
			n++
		}
		if err := r.readFile(ctx, list[:n], bad); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// readFile reads chunks that lie in one segment, ascending.
func (r *reader) readFile(ctx context.Context, list []located, bad func(located, error) error) error {
	file := list[0].file
	f, err := r.fs.Open(path.Join(r.dir, file))
	if err != nil {
		for _, l := range list {
			if err := bad(l, r.located(l, unreadable(file, l.Offset, err))); err != nil {
				return err
			}
		}
		return nil
	}
	defer f.Close() // read only: nothing can be lost
	for len(list) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, bytes := 1, list[0].Bytes
		for n < len(list) && list[n].Offset == list[0].Offset+bytes && bytes+list[n].Bytes <= windowBytes {
			bytes += list[n].Bytes
			n++
		}
		if err := r.readWindow(f, list[:n], int(bytes), bad); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// readWindow reads chunks that lie one behind the other, bytes in all.
func (r *reader) readWindow(f vfs.File, list []located, bytes int, bad func(located, error) error) error {
	r.buffer = slices.Grow(r.buffer[:0], bytes)[:bytes]
	err := readFull(f, r.buffer, list[0].Offset)
	if err != nil && len(list) > 1 {
		for i := range list { // one at a time, to find out which of them can be read
			if err := r.readWindow(f, list[i:i+1], int(list[i].Bytes), bad); err != nil {
				return err
			}
		}
		return nil
	}
	rest := r.buffer
	for _, l := range list {
		wrong := unreadable(l.file, l.Offset, err)
		if wrong == nil {
			wrong, err = r.decode(l, rest[:l.Bytes])
			if err != nil {
				return err
			}
		}
		if wrong != nil {
			if err := bad(l, r.located(l, wrong)); err != nil {
				return err
			}
		}
		rest = rest[l.Bytes:]
	}
	return nil
}

// located adds to damage which chunk and tensor it is in.
func (r *reader) located(l located, err error) error {
	if d, ok := errors.AsType[*Damage](err); ok {
		d.Chunk = int64(l.Chunk)
		d.Tensor = r.layout.Tensors[r.layout.Chunks[l.Chunk].Tensor].Name
	}
	return err
}

// decode verifies a record and places its values. wrong says what is wrong with the record; err is that
// of place.
func (r *reader) decode(l located, b []byte) (wrong, err error) {
	h, wrong := l.check(b)
	if wrong != nil {
		return wrong, nil
	}
	if want := r.layout.Chunks[l.Chunk].Len(); h.Values != want {
		return damaged(l.file, l.Offset, "it has %d values, the model has %d there", h.Values, want), nil
	}
	info := ChunkInfo{
		Chunk: h.Chunk, Line: h.Line, Step: h.Step, Optimizer: h.Optimizer,
		Rule: h.Rule, Values: h.Values, StateArrays: h.Arrays,
	}
	to, err := r.place(info)
	if err != nil {
		return nil, err
	}
	b = b[headerBytes:]
	for i, dst := range [...][]float32{to.Params, to.State[0], to.State[1]} {
		switch {
		case dst == nil:
			continue
		case i > h.Arrays:
			return nil, fmt.Errorf("chunk %d was saved by rule %d with %d state arrays, the run needs %d: restore parameters only, or use the rule of the checkpoint: %w",
				h.Chunk, h.Rule, h.Arrays, i, kintsugi.ErrOtherModel)
		case len(dst) != h.Values:
			return nil, fmt.Errorf("chunk %d has %d values, array %d of its place %d: %w", h.Chunk, h.Values, i, len(dst), kintsugi.ErrUsage)
		}
		decodeFloats(dst, b[4*h.Values*i:])
	}
	return nil, nil
}

// check verifies that b is exactly the record that the manifest named, and whole.
func (l located) check(b []byte) (recordHeader, error) {
	h, err := parseRecordHeader(b)
	if v, ok := errors.AsType[versionError](err); ok {
		return h, newer(l.file, int(v))
	}
	if err != nil {
		return h, damaged(l.file, l.Offset, "%w", err)
	}
	found := located{
		Entry: Entry{Chunk: h.Chunk, Step: h.Step, Segment: l.Segment, Offset: h.Offset, Bytes: int64(h.bytes()), CRC: Sum(h.PayloadCRC)},
		file:  l.file,
		line:  h.Line,
		rule:  h.Rule,
	}
	if found != l {
		return h, damaged(l.file, l.Offset, "the record there is chunk %d of line %d step %d, written at offset %d with %d bytes and CRC32C %08x; the manifest says chunk %d of line %d step %d with %d bytes and %08x",
			found.Chunk, found.line, found.Step, found.Offset, found.Bytes, uint32(found.CRC), l.Chunk, l.line, l.Step, l.Bytes, uint32(l.CRC))
	}
	if err := checkRecord(b, h); err != nil {
		return h, damaged(l.file, l.Offset, "%w", err)
	}
	return h, nil
}
