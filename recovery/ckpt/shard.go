package ckpt

import (
	"fmt"
	"path"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

const shardFormat = "kintsugi shard manifest"

// Segment names a file of chunks.
type Segment struct {
	File  string `json:"file"`  // relative to the checkpoint's directory
	Bytes int64  `json:"bytes"` // of the whole file
}

// Entry says where one record of a chunk's value lies.
type Entry struct {
	Chunk   kintsugi.ChunkID `json:"chunk"`
	Step    kintsugi.Step    `json:"step"`    // version of the value
	Segment int              `json:"segment"` // index into ShardManifest.Segments
	Offset  int64            `json:"offset"`  // of the record in its segment
	Bytes   int64            `json:"bytes"`   // length of the record: header, payload, padding
	CRC     Sum              `json:"crc"`     // of the payload

	// Increment says that the record is added to the entry before, which is of the same chunk and
	// of an earlier step.
	Increment bool `json:"increment,omitempty"`
}

// ShardManifest says where the newest saved value of each chunk of one shard lies, as of one save.
// It is immutable once published.
type ShardManifest struct {
	Format      string           `json:"format"`
	Version     int              `json:"version"`
	Line        kintsugi.Line    `json:"line"`
	Step        kintsugi.Step    `json:"step"`
	Fence       kintsugi.Fence   `json:"fence"`
	Shard       kintsugi.ShardID `json:"shard"`
	Attempt     uint32           `json:"attempt"`
	Fingerprint Fingerprint      `json:"fingerprint"`
	Rule        kintsugi.Rule    `json:"rule"`

	// Lo and Hi bound the chunks [Lo, Hi) of the shard.
	Lo kintsugi.ChunkID `json:"lo"`
	Hi kintsugi.ChunkID `json:"hi"`

	// Invariant: Segments ascend by name and end with the one written by this save; each of the
	// others holds at least one of Chunks.
	Segments []Segment `json:"segments"`

	// Invariant: Chunks ascend by number and lie in [Lo, Hi). A chunk that was never saved is
	// absent. A chunk that was saved by increments has an entry for each record that its value
	// needs, by ascending step; the first is not an increment.
	Chunks []Entry `json:"chunks"`
}

// number sets the version. A program that does not know increments must not read a manifest with
// increments. The records say how those are encoded.
func (m *ShardManifest) number() {
	m.Version = plainVersion
	if slices.ContainsFunc(m.Chunks, func(e Entry) bool { return e.Increment }) {
		m.Version = incrementVersion
	}
}

func (m *ShardManifest) name() fileName {
	return fileName{Line: m.Line, Step: m.Step, Fence: m.Fence, Shard: m.Shard, Attempt: m.Attempt}
}

// File returns the name of the manifest, relative to the checkpoint's directory.
func (m *ShardManifest) File() string { return path.Join(shardDir, m.name().shard()) }

// Complete reports whether the manifest has all chunks of its shard at its step. Only such
// manifests make a full checkpoint.
func (m *ShardManifest) Complete() bool {
	for _, e := range m.Chunks {
		if e.Step != m.Step || e.Increment {
			return false
		}
	}
	return len(m.Chunks) == int(m.Hi-m.Lo)
}

// Bytes returns stored, the bytes of all segments that the manifest names, and live, those of its
// records in them.
func (m *ShardManifest) Bytes() (stored, live int64) {
	for _, s := range m.Segments {
		stored += s.Bytes
	}
	for _, e := range m.Chunks {
		live += e.Bytes
	}
	return stored, live
}

func (m *ShardManifest) encode() ([]byte, error) {
	var j jsonLines
	j.field("format", m.Format)
	j.field("version", m.Version)
	j.field("line", m.Line)
	j.field("step", m.Step)
	j.field("fence", m.Fence)
	j.field("shard", m.Shard)
	j.field("attempt", m.Attempt)
	j.field("fingerprint", m.Fingerprint)
	j.field("rule", m.Rule)
	j.field("lo", m.Lo)
	j.field("hi", m.Hi)
	writeList(&j, "segments", m.Segments)
	writeList(&j, "chunks", m.Chunks)
	return j.seal()
}

// decodeShard decodes and checks a shard manifest that was read from file.
func decodeShard(file string, b []byte) (*ShardManifest, error) {
	m := new(ShardManifest)
	if err := decodeManifest(file, shardFormat, incrementVersion, b, m); err != nil {
		return nil, err
	}
	if err := checkManifest(file, b, m, m.File); err != nil {
		return nil, err
	}
	return m, nil
}

// check tests the invariants, and bounds every number that a reader multiplies or allocates by.
func (m *ShardManifest) check() error {
	if err := m.Rule.Check(); err != nil {
		return err
	}
	was := m.Version
	if m.number(); m.Version != was {
		return fmt.Errorf("version %d with such chunks", was)
	}
	if m.Lo > m.Hi {
		return fmt.Errorf("chunks [%d, %d) are no range", m.Lo, m.Hi)
	}
	used := make([]bool, len(m.Segments))
	if err := m.checkChunks(used); err != nil {
		return err
	}
	last := fileName{}
	for i, s := range m.Segments {
		name, ok := parseIn(segmentDir, s.File)
		switch {
		case !ok:
			return fmt.Errorf("%q is no name of a segment", s.File)
		case name.Line != m.Line || name.Shard != m.Shard:
			return fmt.Errorf("segment %s belongs to line %d shard %d", s.File, name.Line, name.Shard)
		case i > 0 && name.compare(last) <= 0:
			return fmt.Errorf("segment %s is out of order", s.File)
		case s.Bytes < headerBytes || s.Bytes%align != 0:
			return fmt.Errorf("segment %s of %d bytes", s.File, s.Bytes)
		case !used[i] && i < len(m.Segments)-1:
			return fmt.Errorf("segment %s holds none of the chunks", s.File)
		}
		last = name
	}
	if len(m.Segments) == 0 || last != m.name() {
		return fmt.Errorf("the last segment is not the one of this save")
	}
	return nil
}

func (m *ShardManifest) checkChunks(used []bool) error {
	for i, e := range m.Chunks {
		follows := i > 0 && e.Increment && m.Chunks[i-1].Chunk == e.Chunk && m.Chunks[i-1].Step < e.Step
		switch {
		case e.Increment && !follows:
			return fmt.Errorf("an increment of chunk %d to step %d has nothing before it", e.Chunk, e.Step)
		case e.Chunk < m.Lo || e.Chunk >= m.Hi || i > 0 && e.Chunk <= m.Chunks[i-1].Chunk && !follows:
			return fmt.Errorf("chunk %d is out of order, or not in [%d, %d)", e.Chunk, m.Lo, m.Hi)
		case e.Step > m.Step:
			return fmt.Errorf("chunk %d of step %d in a manifest of step %d", e.Chunk, e.Step, m.Step)
		case e.Segment < 0 || e.Segment >= len(m.Segments):
			return fmt.Errorf("chunk %d in segment %d of %d", e.Chunk, e.Segment, len(m.Segments))
		case e.Offset < headerBytes || e.Offset%align != 0,
			e.Bytes <= headerBytes || e.Bytes%align != 0 || e.Bytes > headerBytes+maxPayload,
			e.Offset > m.Segments[e.Segment].Bytes-e.Bytes:
			return fmt.Errorf("chunk %d at offset %d with %d bytes of a segment of %d",
				e.Chunk, e.Offset, e.Bytes, m.Segments[e.Segment].Bytes)
		}
		used[e.Segment] = true
	}
	return nil
}

// ShardRef names a published shard manifest and repeats what a run manifest must know of it.
type ShardRef struct {
	Shard kintsugi.ShardID `json:"shard"`
	Lo    kintsugi.ChunkID `json:"lo"`
	Hi    kintsugi.ChunkID `json:"hi"`
	File  string           `json:"file"`  // relative to the checkpoint's directory
	Bytes int64            `json:"bytes"` // of the manifest
	CRC   Sum              `json:"crc"`   // of the whole manifest
}

// ReadShard reads a published shard manifest, whose file is relative to dir. It does not look at
// the segments. Errors are kintsugi.ErrCorrupt (damaged or missing) and kintsugi.ErrOtherModel
// (newer format).
func ReadShard(fsys vfs.FS, dir, file string) (*ShardManifest, ShardRef, error) {
	if _, ok := parseIn(shardDir, file); !ok {
		return nil, ShardRef{}, fmt.Errorf("%q is no name of a shard manifest: %w", file, kintsugi.ErrUsage)
	}
	b, err := readAll(fsys, dir, file, maxManifest)
	if err != nil {
		return nil, ShardRef{}, err
	}
	m, err := decodeShard(file, b)
	if err != nil {
		return nil, ShardRef{}, err
	}
	return m, ShardRef{Shard: m.Shard, Lo: m.Lo, Hi: m.Hi, File: file, Bytes: int64(len(b)), CRC: Sum(checksum(b))}, nil
}

// checkSegments checks that the segments exist and have their size. It does not read them.
func (m *ShardManifest) checkSegments(fsys vfs.FS, dir string) error {
	type stat struct {
		vfs.Info
		err error
	}
	for i, info := range askEach(fsys, len(m.Segments), func(i int) (f stat) {
		f.Info, f.err = fsys.Stat(path.Join(dir, m.Segments[i].File))
		return f
	}) {
		s := m.Segments[i]
		if info.err != nil {
			return unreadable(s.File, -1, info.err)
		}
		if info.Directory || info.Size != s.Bytes {
			return damaged(s.File, min(info.Size, s.Bytes), "%d bytes (directory: %t), %s says %d",
				info.Size, info.Directory, m.File(), s.Bytes)
		}
	}
	return nil
}
