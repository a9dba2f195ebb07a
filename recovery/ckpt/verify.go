package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Report is what Verify found.
type Report struct {
	// Checkpoints are the full checkpoints, newest first.
	Checkpoints []CheckpointReport

	// Damage lists everything that is wrong in published files, each place once. Each element is a
	// *Damage.
	Damage []error

	// Unpublished are files that belong to no checkpoint: left by a crash, part of a save in
	// progress, or not of this package. They were not read.
	Unpublished []string

	Files int   // published files that were read
	Bytes int64 // in them
}

// CheckpointReport is what Verify found in one full checkpoint.
type CheckpointReport struct {
	Name     string       // of the run manifest
	Manifest *RunManifest // nil: it cannot be read
	Damage   []error      // in any of its files; empty: every byte is right
}

// Verify reads every byte of every published file of a checkpoint directory and compares it with
// the checksum, or with the one value that it must have. The report lists damage of any kind. The
// error says why Verify could not look: the context ended, a disk refuses at present, or the format
// is newer.
//
// progress, if not nil, is called from time to time with the bytes of segments that have been read,
// and their total.
func Verify(ctx context.Context, fsys vfs.FS, dir string, progress func(done, total int64)) (Report, error) {
	v := verifier{
		fs: fsys, dir: dir, progress: progress,
		shards:   map[string]*ShardManifest{},
		sums:     map[string]ShardRef{},
		segments: map[string]*segmentUse{},
		wrong:    map[string][]error{},
		tensors:  map[Fingerprint][]kintsugi.Tensor{},
	}
	if progress == nil {
		v.progress = func(int64, int64) {}
	}
	if err := v.verify(ctx); err != nil {
		return Report{}, fmt.Errorf("verify %s: %w", dir, err)
	}
	return v.report, nil
}

type verifier struct {
	fs       vfs.FS
	dir      string
	progress func(done, total int64)
	report   Report

	runs     []*RunManifest                    // as in report.Checkpoints; nil: it cannot be read
	shards   map[string]*ShardManifest         // by file; those that can be read
	sums     map[string]ShardRef               // by file; those that can be read
	segments map[string]*segmentUse            // by file; those that manifests name
	tensors  map[Fingerprint][]kintsugi.Tensor // of run manifests, to name tensors in damage
	wrong    map[string][]error                // by file

	done, total int64 // bytes of segments
	buffer      []byte
}

// segmentUse is what manifests say of one segment.
type segmentUse struct {
	bytes       int64
	fingerprint Fingerprint
	entries     []located // ascending by offset; several manifests may name the same record
}

// note records damage. It returns any other error.
func (v *verifier) note(file string, err error) error {
	if err == nil || !errors.Is(err, kintsugi.ErrCorrupt) {
		return err
	}
	v.wrong[file] = append(v.wrong[file], err)
	v.report.Damage = append(v.report.Damage, err)
	return nil
}

func (v *verifier) verify(ctx context.Context) error {
	for _, step := range []func() error{v.readClaims, v.readRuns, v.readShards, v.checkRefs, v.findSegments} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := v.readSegments(ctx); err != nil {
		return err
	}
	v.conclude()
	return v.findUnpublished()
}

func (v *verifier) readClaims() error {
	owners, err := ownersOf(v.fs, v.dir, "")
	if err != nil {
		return err
	}
	files := make([]string, len(owners.claims))
	for i, line := range owners.claims {
		files[i] = path.Join(lineDir, claimName(line))
	}
	for i, r := range v.readWhole(files, maxClaim) {
		err := r.err
		if err == nil {
			_, err = decodeClaim(files[i], r.content)
		}
		if err := v.note(files[i], err); err != nil {
			return err
		}
	}
	return nil
}

// wholeRead is what came of reading a file.
type wholeRead struct {
	content []byte
	err     error
}

// readWhole reads files of up to so many bytes, and counts them.
func (v *verifier) readWhole(files []string, most int64) iter.Seq2[int, wholeRead] {
	return func(yield func(int, wholeRead) bool) {
		for i, r := range askEach(v.fs, len(files), func(i int) (r wholeRead) {
			r.content, r.err = readAll(v.fs, v.dir, files[i], most)
			return r
		}) {
			if r.err == nil {
				v.report.Files++
				v.report.Bytes += int64(len(r.content))
			}
			if !yield(i, r) {
				return
			}
		}
	}
}

func (v *verifier) readRuns() error {
	names, err := List(v.fs, v.dir)
	if err != nil {
		return err
	}
	for i, r := range v.readWhole(names, maxManifest) {
		name, err := names[i], r.err
		var m *RunManifest
		if err == nil {
			m, err = decodeRun(name, r.content)
		}
		if err := v.note(name, err); err != nil {
			return err
		}
		v.runs = append(v.runs, m)
		v.report.Checkpoints = append(v.report.Checkpoints, CheckpointReport{Name: name, Manifest: m})
		if m != nil {
			v.tensors[m.Fingerprint] = m.Tensors
		}
	}
	return nil
}

func (v *verifier) readShards() error {
	names, err := listNames(v.fs, v.dir, shardDir, parseShardName)
	if err != nil {
		return err
	}
	files := make([]string, len(names))
	for i, n := range names {
		files[i] = path.Join(shardDir, n.shard())
	}
	for i, r := range readShards(v.fs, v.dir, files) {
		if err := v.note(files[i], r.err); err != nil {
			return err
		}
		if r.m != nil {
			v.report.Files++
			v.report.Bytes += r.ref.Bytes
			v.shards[files[i]], v.sums[files[i]] = r.m, r.ref
		}
	}
	return nil
}

// checkRefs compares run manifests with the shard manifests that they name.
func (v *verifier) checkRefs() error {
	for _, m := range v.runs {
		if m == nil {
			continue
		}
		for _, ref := range m.Shards {
			if v.shards[ref.File] == nil && v.wrong[ref.File] != nil {
				continue // noted when it was read
			}
			if v.sums[ref.File] == ref && m.accepts(v.shards[ref.File]) == nil {
				continue
			}
			_, err := m.readShard(v.fs, v.dir, ref) // says what is wrong
			if err := v.note(ref.File, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// findSegments collects what all shard manifests say of segments.
func (v *verifier) findSegments() error {
	for _, file := range slices.Sorted(maps.Keys(v.shards)) {
		m := v.shards[file]
		for _, s := range m.Segments {
			use := v.segments[s.File]
			if use == nil {
				use = &segmentUse{bytes: s.Bytes, fingerprint: m.Fingerprint}
				v.segments[s.File] = use
			}
			if use.bytes != s.Bytes || use.fingerprint != m.Fingerprint {
				err := damaged(m.File(), 0, "another manifest says that %s has %d bytes and fingerprint %016x, not %d and %016x",
					s.File, use.bytes, uint64(use.fingerprint), s.Bytes, uint64(m.Fingerprint))
				if err := v.note(m.File(), err); err != nil {
					return err
				}
			}
		}
		for _, l := range m.locate(kintsugi.ChunkRange{Lo: m.Lo, Hi: m.Hi}) {
			l.Segment = 0
			use := v.segments[l.file]
			use.entries = append(use.entries, l)
		}
	}
	for _, use := range v.segments {
		slices.SortFunc(use.entries, func(a, b located) int { return cmp.Compare(a.Offset, b.Offset) })
		use.entries = slices.Compact(use.entries)
	}
	return nil
}

// readSegments checks all segments.
func (v *verifier) readSegments(ctx context.Context) error {
	files := slices.Sorted(maps.Keys(v.segments))
	segments := make([]segment, 0, len(files))
	var parts []part
	reads, most := atOnce(v.fs)
	for i, s := range askEach(v.fs, len(files), func(i int) (s segment) {
		s.info, s.err = v.fs.Stat(path.Join(v.dir, files[i]))
		return s
	}) {
		s.file, s.use = files[i], v.segments[files[i]]
		v.total += s.use.bytes
		s.from, s.first = newSource(s.file), len(parts)
		if bytes := min(s.info.Size, s.use.bytes); s.err == nil && !s.info.Directory && reads > 1 {
			for at := int64(0); at < bytes; at += int64(most) {
				parts = append(parts, part{from: s.from, offset: at, bytes: int(min(bytes-at, int64(most)))})
			}
		}
		s.end = len(parts)
		segments = append(segments, s)
	}
	reader := partReader{fs: v.fs, dir: v.dir}
	next, stop := iter.Pull2(reader.each(parts))
	defer stop()
	read := 0 // parts
	for _, s := range segments {
		for ; read < s.first; read++ {
			next() // that damage made useless
		}
		s.next = func() (*part, bool) {
			if read == s.end {
				return nil, false
			}
			read++
			_, p, ok := next()
			return p, ok
		}
		if err := v.readSegment(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// segment is a segment that is checked.
type segment struct {
	file       string
	use        *segmentUse
	info       vfs.Info
	err        error // of asking for info
	from       *source
	first, end int                  // its parts, if the file system is far away
	next       func() (*part, bool) // returns these
}

// readSegment checks all records of a segment, whether a manifest still names them or not.
func (v *verifier) readSegment(ctx context.Context, s segment) error {
	file, use, info, err := s.file, s.use, s.info, s.err
	if err == nil && (info.Directory || info.Size != use.bytes) {
		err = damaged(file, min(info.Size, use.bytes), "%d bytes (directory: %t), its manifest says %d", info.Size, info.Directory, use.bytes)
		if info.Directory {
			return v.note(file, err)
		}
		if err := v.note(file, err); err != nil {
			return err
		}
		err = nil
	}
	if err != nil {
		return v.note(file, unreadable(file, -1, err))
	}
	opened, err := s.from.open(v.fs, v.dir)
	if err != nil {
		return v.note(file, unreadable(file, -1, err))
	}
	f := io.ReaderAt(opened)
	if s.first < s.end {
		f = &ascending{f: opened, next: s.next} // who reads ahead closes it
	} else {
		defer s.from.close()
	}
	v.report.Files++
	v.report.Bytes += info.Size
	if err := v.note(file, checkSegmentHeader(f, file, use)); err != nil {
		return err
	}
	w := walk{v: v, f: f, file: file, use: use, next: use.entries, layout: v.layout(use.fingerprint)}
	for pos := int64(headerBytes); pos < use.bytes; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		after, err := w.record(pos)
		if err != nil {
			return err
		}
		v.done += after - pos
		v.progress(v.done, v.total)
		pos = after
	}
	v.done += headerBytes
	v.progress(v.done, v.total)
	return nil
}

// layout returns the layout with that fingerprint, so that damage can name the tensor; nil:
// unknown.
func (v *verifier) layout(f Fingerprint) *kintsugi.Layout {
	layout, err := kintsugi.NewLayout(v.tensors[f])
	if err != nil {
		return nil
	}
	return layout
}

func checkSegmentHeader(f io.ReaderAt, file string, use *segmentUse) error {
	h, err := readSegmentHeader(f, file)
	if err == nil && h.Fingerprint != uint64(use.fingerprint) {
		err = misplaced(file, h)
	}
	return err
}

// walk is the state of a check of all records of one segment.
type walk struct {
	v      *verifier
	f      io.ReaderAt
	file   string
	use    *segmentUse
	layout *kintsugi.Layout
	next   []located // entries that are not reached yet
}

// record verifies the record at pos and returns where the next one begins. If its header is
// damaged, that is the next place that a manifest names, so that one wrong byte does not hide
// others.
func (w *walk) record(pos int64) (after int64, err error) {
	for len(w.next) > 0 && w.next[0].Offset < pos {
		err := damaged(w.file, w.next[0].Offset, "a manifest names a record in the middle of another")
		if err := w.note(w.next[0].Chunk, err); err != nil {
			return 0, err
		}
		w.next = w.next[1:]
	}
	b, h, err := readRecord(w.f, w.file, pos, w.v.buffer)
	w.v.buffer = b
	if err != nil {
		after = w.use.bytes
		chunk := int64(-1)
		for _, l := range w.next {
			if l.Offset == pos {
				chunk = int64(l.Chunk)
			}
			if l.Offset > pos {
				after = l.Offset
				break
			}
		}
		for len(w.next) > 0 && w.next[0].Offset == pos {
			w.next = w.next[1:]
		}
		if chunk < 0 {
			return after, w.v.note(w.file, err)
		}
		return after, w.note(kintsugi.ChunkID(chunk), err)
	}
	named := false
	for ; len(w.next) > 0 && w.next[0].Offset == pos; w.next = w.next[1:] {
		named = true
		_, err := w.next[0].check(b)
		if err := w.note(h.Chunk, err); err != nil {
			return 0, err
		}
	}
	if !named { // a newer save has the chunk, but the file belongs to the checkpoint
		if err := checkRecord(b, h); err != nil {
			if err := w.note(h.Chunk, damaged(w.file, pos, "%w", err)); err != nil {
				return 0, err
			}
		}
	}
	return pos + int64(h.bytes()), nil
}

// note records damage of a chunk, with the tensor's name if that is known.
func (w *walk) note(chunk kintsugi.ChunkID, err error) error {
	if d, ok := errors.AsType[*Damage](err); ok {
		d.Chunk = int64(chunk)
		if w.layout != nil && int(chunk) < len(w.layout.Chunks) {
			d.Tensor = w.layout.Tensors[w.layout.Chunks[chunk].Tensor].Name
		}
	}
	return w.v.note(w.file, err)
}

// conclude says, for each checkpoint, what is wrong in its files.
func (v *verifier) conclude() {
	for i := range v.report.Checkpoints {
		c := &v.report.Checkpoints[i]
		c.Damage = append(c.Damage, v.wrong[c.Name]...)
		if c.Manifest == nil {
			continue
		}
		for _, ref := range c.Manifest.Shards {
			c.Damage = append(c.Damage, v.wrong[ref.File]...)
			if s := v.shards[ref.File]; s != nil {
				for _, segment := range s.Segments {
					c.Damage = append(c.Damage, v.wrong[segment.File]...)
				}
			}
		}
	}
}

func (v *verifier) findUnpublished() error {
	for _, folder := range []string{lineDir, runDir, shardDir, segmentDir, tmpDir} {
		names, err := listFolder(v.fs, v.dir, folder)
		if err != nil {
			return err
		}
		for _, name := range names {
			file := path.Join(folder, name)
			_, isRun := parseIn(runDir, file)
			_, isShard := parseIn(shardDir, file)
			_, isClaim := parseIn(lineDir, file)
			if !isRun && !isShard && !isClaim && v.segments[file] == nil {
				v.report.Unpublished = append(v.report.Unpublished, file)
			}
		}
	}
	return nil
}
