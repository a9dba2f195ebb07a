package ckpt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// WriterConfig says which chunks a Writer saves, and where they belong. All fields are needed;
// Shard, Range and Run may be zero, and Increments nil.
type WriterConfig struct {
	Layout *kintsugi.Layout
	Rule   kintsugi.Rule
	Shard  kintsugi.ShardID
	Range  kintsugi.ChunkRange // the chunks of the shard
	Line   kintsugi.Line
	Fence  kintsugi.Fence // of the view in which this process holds the shard
	Run    string         // id of the run, which has taken the place (Take). Empty: the place is shared with no other run

	Increments *Increments // nil: every chunk is saved whole
}

// Writer saves one shard. One goroutine at a time may use it. Several Writers, in several
// processes, may save into one directory at the same time, even the same shard: each has files of
// its own.
type Writer struct {
	fs  vfs.FS
	dir string
	cfg WriterConfig

	held        kintsugi.Line // of the newest claim that was seen, which belongs to cfg.Run; 0: none
	arrays      int           // of state, by cfg.Rule
	fingerprint Fingerprint

	// newest is the shard manifest that the next save starts from; nil: there is none. It names the
	// newest saved value of each chunk.
	newest *ShardManifest

	chains map[kintsugi.ChunkID]link // what this Writer has saved, to which increments may be added; it knows nothing older

	buffers [][]byte // of the output; kept so that saves do not allocate
}

// OpenWriter returns a Writer for a shard. It continues the running checkpoint of the shard on its
// line: chunks that it does not save keep the values that an earlier Writer saved. If a shard
// manifest is damaged, it uses the one before. Errors: kintsugi.ErrFenced if a Writer with a larger
// fence has saved this shard on this line, ErrTaken if the place belongs to another run, and
// ErrUnclaimed if it belongs to none.
func OpenWriter(fsys vfs.FS, dir string, c WriterConfig) (*Writer, error) {
	if err := c.Rule.Check(); err != nil {
		return nil, fmt.Errorf("open checkpoint writer: %w: %w", err, kintsugi.ErrUsage)
	}
	if c.Layout == nil || c.Range.Lo > c.Range.Hi || int(c.Range.Hi) > len(c.Layout.Chunks) {
		return nil, fmt.Errorf("open checkpoint writer: chunks [%d, %d) are not in the layout: %w",
			c.Range.Lo, c.Range.Hi, kintsugi.ErrUsage)
	}
	w := &Writer{fs: fsys, dir: dir, cfg: c, arrays: c.Rule.States(), fingerprint: Fingerprint(c.Layout.Fingerprint()), chains: map[kintsugi.ChunkID]link{}}
	if i := c.Increments; i != nil && (!adds(i.Encoding) || i.Coasts > math.MaxUint32) {
		return nil, fmt.Errorf("open checkpoint writer: increments in %v that coast for %d steps: %w", i.Encoding, i.Coasts, kintsugi.ErrUsage)
	}
	describe := func(err error) error {
		return fmt.Errorf("open checkpoint writer for shard %d in %s: %w", c.Shard, dir, err)
	}
	if err := makeFolders(fsys, dir); err != nil {
		return nil, describe(err)
	}
	if err := w.claim(); err != nil {
		return nil, describe(err)
	}
	names, err := listNames(fsys, dir, shardDir, parseShardName)
	if err != nil {
		return nil, describe(err)
	}
	names = slices.DeleteFunc(names, func(n fileName) bool { return n.Line != c.Line || n.Shard != c.Shard })
	for _, n := range names {
		if n.Fence > c.Fence {
			return nil, describe(fmt.Errorf("a writer with fence %d has saved at step %d, this one has %d: %w",
				n.Fence, n.Step, c.Fence, kintsugi.ErrFenced))
		}
	}
	for _, n := range slices.Backward(names) {
		m, _, err := ReadShard(fsys, dir, path.Join(shardDir, n.shard()))
		if err == nil {
			err = m.checkSegments(fsys, dir)
		}
		if errors.Is(err, kintsugi.ErrCorrupt) {
			continue // Verify and RestoreRunning report it; a save of all chunks heals it
		}
		if err != nil {
			return nil, describe(err)
		}
		if m.Fingerprint == w.fingerprint && m.Rule == c.Rule && m.Lo == c.Range.Lo && m.Hi == c.Range.Hi {
			w.newest = m
			break
		}
	}
	return w, nil
}

// Snapshot is what a Writer saves: chunks of one version, which must be released.
type Snapshot struct {
	Step kintsugi.Step

	// Chunks are the chunks to save, ascending; nil: all of the shard. Only a save of all chunks
	// can be part of a full checkpoint.
	Chunks []kintsugi.ChunkID

	// Load returns the values of a chunk and the optimizer steps that it has taken. Save reads the
	// values before it calls Load again, and does not keep them.
	Load func(kintsugi.ChunkID) (values Arrays, optimizer uint64)

	// Saved returns what is saved of a chunk: the parameters of the save before, or those in its
	// Kept, and, if values coast, its velocity (zeros after a whole save). nil: chunks are saved
	// whole. Save calls it only for chunks of which this Writer has saved something, and reads the
	// result before it calls Saved again. A chunk for which the result is not what this Writer
	// saved is saved whole.
	Saved func(kintsugi.ChunkID) Moving
}

// SaveReport says what a save has done.
type SaveReport struct {
	ShardRef
	Complete bool  // the manifest may be part of a full checkpoint
	Written  int64 // bytes of the segment and the manifest
	Stored   int64 // bytes of all segments that the running checkpoint of the shard needs now
	Live     int64 // bytes of its chunks among Stored

	// Kept are the saved values of the chunks that were saved by increments. The saved values of
	// all other chunks are those of the snapshot.
	Kept map[kintsugi.ChunkID]Moving
}

// Save appends the chunks to a new segment, syncs it, and publishes a shard manifest that names the
// newest value of every chunk of the shard. When it returns without an error, the save is durable.
// It blocks for as long as the disk takes.
//
// The error is ErrTaken if the place belongs to another run by now, and ErrUnclaimed if the place
// has been emptied.
//
// After an error, nothing was published (or, if the very last sync failed, possibly everything,
// which is harmless). The Writer may be used again, with the same step or a later one.
func (w *Writer) Save(ctx context.Context, s Snapshot) (SaveReport, error) {
	report, err := w.save(ctx, s)
	if err != nil {
		clear(w.chains) // it is not known which of it exists
		return SaveReport{}, fmt.Errorf("save step %d of shard %d in %s: %w", s.Step, w.cfg.Shard, w.dir, err)
	}
	return report, nil
}

func (w *Writer) save(ctx context.Context, s Snapshot) (SaveReport, error) {
	chunks, err := w.selected(s)
	if err != nil {
		return SaveReport{}, err
	}
	if err := w.claim(); err != nil { // before the segment, which the place's new run would otherwise have to remove
		return SaveReport{}, err
	}
	name := fileName{Line: w.cfg.Line, Step: s.Step, Fence: w.cfg.Fence, Shard: w.cfg.Shard}
	first := uint32(0)
	if n := w.newest; n != nil && n.Step == s.Step && n.Fence == w.cfg.Fence {
		first = n.Attempt + 1 // names ascend, even if Compact has made an earlier one free again
	}
	f, file, err := createFirst(w.fs, func(i uint32) string {
		name.Attempt = first + i
		return path.Join(w.dir, segmentDir, name.shard())
	})
	if err != nil {
		return SaveReport{}, err
	}
	kept := map[kintsugi.ChunkID]Moving{}
	entries, size, err := w.writeSegment(ctx, f, name, s, chunks, kept)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = w.fs.SyncDir(path.Join(w.dir, segmentDir))
	}
	if err != nil {
		// No manifest names the segment; Compact would remove it later. In a file system in which
		// files appear whole, there is mostly no file. If there is one, it may belong to another
		// writer, or to the next save before the removal arrives.
		if _, whole := w.fs.(vfs.Publisher); !whole {
			_ = w.fs.Remove(file)
		}
		return SaveReport{}, err
	}
	m := w.merge(name, Segment{File: path.Join(segmentDir, name.shard()), Bytes: size}, entries)
	if err := m.check(); err != nil {
		return SaveReport{}, err
	}
	content, err := m.encode()
	if err != nil {
		return SaveReport{}, err
	}
	if err := publish(w.fs, w.dir, shardDir, name.shard(), content); err != nil {
		return SaveReport{}, err
	}
	w.newest = m
	r := SaveReport{
		ShardRef: ShardRef{
			Shard: m.Shard, Lo: m.Lo, Hi: m.Hi,
			File: m.File(), Bytes: int64(len(content)), CRC: Sum(checksum(content)),
		},
		Complete: m.Complete(),
		Written:  size + int64(len(content)),
		Kept:     kept,
	}
	r.Stored, r.Live = m.Bytes()
	return r, nil
}

// selected checks the snapshot and returns the chunks to save.
func (w *Writer) selected(s Snapshot) ([]kintsugi.ChunkID, error) {
	if w.newest != nil && s.Step < w.newest.Step {
		return nil, fmt.Errorf("step %d of this line is saved already: %w", w.newest.Step, kintsugi.ErrUsage)
	}
	if s.Chunks == nil {
		all := make([]kintsugi.ChunkID, 0, w.cfg.Range.Hi-w.cfg.Range.Lo)
		for id := w.cfg.Range.Lo; id < w.cfg.Range.Hi; id++ {
			all = append(all, id)
		}
		return all, nil
	}
	for i, id := range s.Chunks {
		if id < w.cfg.Range.Lo || id >= w.cfg.Range.Hi || i > 0 && id <= s.Chunks[i-1] {
			return nil, fmt.Errorf("chunk %d is out of order, or not in [%d, %d): %w",
				id, w.cfg.Range.Lo, w.cfg.Range.Hi, kintsugi.ErrUsage)
		}
	}
	return s.Chunks, nil
}

// writeSegment writes and syncs a whole segment. It returns where the chunks lie, with Segment
// zero, and the length of the file.
func (w *Writer) writeSegment(ctx context.Context, f vfs.File, name fileName, s Snapshot, chunks []kintsugi.ChunkID, kept map[kintsugi.ChunkID]Moving) (entries []Entry, size int64, err error) {
	// One buffer holds all of a small shard.
	for all := w.bytes(); len(w.buffers) == 0 || len(w.buffers) < outputs && all > flushBytes; {
		w.buffers = append(w.buffers, make([]byte, 0, min(all, flushBytes+headerBytes+maxPayload)))
	}
	out := output{f: f, buffer: w.buffers[0], spare: w.buffers[1:]}
	entries, err = w.fill(ctx, &out, name, s, chunks, kept)
	if err := out.close(err); err != nil {
		return nil, 0, err
	}
	return entries, out.size, f.Sync()
}

// bytes bounds the length of a segment with all chunks of the shard.
func (w *Writer) bytes() int {
	lo, hi := w.cfg.Layout.Span(w.cfg.Range)
	return headerBytes + 4*(hi-lo)*(1+w.arrays) + 2*align*int(w.cfg.Range.Hi-w.cfg.Range.Lo)
}

// maxStored is how many times as large as a shard its segments may be before chunks of the oldest
// segments are saved whole.
const maxStored = 4

// fill encodes a whole segment. For chunks that are saved by increments, it puts the resulting
// saved values into kept.
func (w *Writer) fill(ctx context.Context, out *output, name fileName, s Snapshot, chunks []kintsugi.ChunkID, kept map[kintsugi.ChunkID]Moving) ([]Entry, error) {
	var cold []kintsugi.ChunkID
	if w.cfg.Increments != nil {
		cold = w.Cold(maxStored * int64(w.bytes()))
	}
	out.buffer = segmentHeader{Name: name, Fingerprint: uint64(w.fingerprint), Range: w.cfg.Range}.append(out.buffer)
	entries := make([]Entry, 0, len(chunks))
	for _, id := range chunks {
		values, optimizer := s.Load(id)
		if err := w.fits(id, values); err != nil {
			return nil, err
		}
		h := recordHeader{
			Chunk:     id,
			Values:    len(values.Params),
			Line:      w.cfg.Line,
			Step:      s.Step,
			Optimizer: optimizer,
			Arrays:    w.arrays,
			Rule:      w.cfg.Rule,
			Offset:    out.size + int64(len(out.buffer)),
		}
		added := false
		if s.Saved != nil && s.Chunks != nil && w.adds(id, s.Step, cold) {
			var now Moving
			if out.buffer, h, now, added = w.appendIncrement(out.buffer, h, values, s.Saved(id)); added {
				kept[id] = now
			}
		}
		if !added {
			out.buffer, h = appendRecord(out.buffer, h, values)
			w.whole(h, values)
		}
		entries = append(entries, Entry{
			Chunk: id, Step: s.Step, Offset: h.Offset, Bytes: int64(h.bytes()), CRC: Sum(h.PayloadCRC), Increment: h.Increment,
		})
		if len(out.buffer) < flushBytes {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if err := out.flush(); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// fits returns an error if values are not those of a chunk.
func (w *Writer) fits(id kintsugi.ChunkID, values Arrays) error {
	want := w.cfg.Layout.Chunks[id].Len()
	if len(values.Params) != want {
		return fmt.Errorf("chunk %d has %d values, the snapshot gives %d: %w", id, want, len(values.Params), kintsugi.ErrUsage)
	}
	for i, s := range values.State {
		if i < w.arrays && len(s) != want {
			return fmt.Errorf("chunk %d has %d values, the snapshot gives %d of state array %d: %w", id, want, len(s), i, kintsugi.ErrUsage)
		}
	}
	return nil
}

// merge returns the manifest that names what was just saved, and what earlier saves have of the
// other chunks.
func (w *Writer) merge(name fileName, own Segment, saved []Entry) *ShardManifest {
	m := &ShardManifest{
		Format:      shardFormat,
		Line:        name.Line,
		Step:        name.Step,
		Fence:       name.Fence,
		Shard:       name.Shard,
		Attempt:     name.Attempt,
		Fingerprint: w.fingerprint,
		Rule:        w.cfg.Rule,
		Lo:          w.cfg.Range.Lo,
		Hi:          w.cfg.Range.Hi,
	}
	type placed struct {
		Entry
		file string
	}
	lies := make(map[kintsugi.ChunkID][]placed, m.Hi-m.Lo)
	files := map[string]Segment{own.File: own}
	if w.newest != nil {
		for _, e := range w.newest.Chunks {
			lies[e.Chunk] = append(lies[e.Chunk], placed{e, w.newest.Segments[e.Segment].File})
		}
		for _, s := range w.newest.Segments {
			files[s.File] = s
		}
	}
	for _, e := range saved {
		if !e.Increment {
			lies[e.Chunk] = nil
		}
		lies[e.Chunk] = append(lies[e.Chunk], placed{e, own.File})
	}
	needed := map[string]bool{own.File: true}
	for _, chain := range lies {
		for _, p := range chain {
			needed[p.file] = true
		}
	}
	index := make(map[string]int, len(needed))
	for file, s := range files {
		if needed[file] {
			m.Segments = append(m.Segments, s)
		}
	}
	slices.SortFunc(m.Segments, func(a, b Segment) int { return strings.Compare(a.File, b.File) })
	for i, s := range m.Segments {
		index[s.File] = i
	}
	for id := m.Lo; id < m.Hi; id++ {
		for _, p := range lies[id] {
			p.Segment = index[p.file]
			m.Chunks = append(m.Chunks, p.Entry)
		}
	}
	m.number()
	return m
}

// Cold returns the chunks, ascending, that the next save must include so that the running
// checkpoint needs at most limit bytes of segments besides what that save writes; nil: it already
// does. A segment stays as long as one chunk in it was not saved again. So a planner that only
// saves chunks that move would fill the disk with values that are not needed any more.
func (w *Writer) Cold(limit int64) []kintsugi.ChunkID {
	if w.newest == nil {
		return nil
	}
	stored, _ := w.newest.Bytes()
	oldest := 0 // segments before it must go
	for ; oldest < len(w.newest.Segments) && stored > limit; oldest++ {
		stored -= w.newest.Segments[oldest].Bytes
	}
	var cold []kintsugi.ChunkID
	for _, e := range w.newest.Chunks {
		if e.Segment < oldest {
			cold = append(cold, e.Chunk)
		}
	}
	return slices.Compact(cold)
}
