package ckpt

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// fresh creates a segment whose name differs from n only in its attempt.
func (r *repairer) fresh(n fileName) (vfs.File, fileName, error) {
	base := n
	base.Attempt = 0
	n.Attempt = r.attempts[base]
	r.attempts[base]++
	f, err := r.fs.Create(path.Join(r.dir, segmentDir, n.shard()))
	return f, n, err
}

// salvage copies what is whole in bad segments to new segments.
func (r *repairer) salvage(ctx context.Context) error {
	values, seen := map[string][]located{}, map[located]bool{}
	of := map[string]*ShardManifest{} // any manifest that names the segment
	for _, m := range r.shards {
		for _, l := range m.locate(kintsugi.ChunkRange{Lo: m.Lo, Hi: m.Hi}) {
			l.Segment = 0
			if r.bad[l.file] && !seen[l] {
				seen[l] = true
				values[l.file] = append(values[l.file], l)
			}
		}
		for _, s := range m.Segments {
			of[s.File] = m
		}
	}
	for _, file := range slices.Sorted(maps.Keys(r.bad)) {
		name, ok := parseIn(segmentDir, file)
		if !r.bad[file] || !ok || of[file] == nil {
			continue
		}
		slices.SortFunc(values[file], func(a, b located) int { return cmp.Compare(a.Offset, b.Offset) })
		if err := r.copyWhole(ctx, file, name, of[file], values[file]); err != nil {
			return err
		}
	}
	return nil
}

// copyWhole writes a new segment with those of the values that are whole.
func (r *repairer) copyWhole(ctx context.Context, file string, name fileName, m *ShardManifest, values []located) error {
	to, name, err := r.fresh(name)
	if err != nil {
		return err
	}
	defer to.Close() // after Sync
	r.replaced[file] = name
	header := segmentHeader{Name: name, Fingerprint: uint64(m.Fingerprint), Range: kintsugi.ChunkRange{Lo: m.Lo, Hi: m.Hi}}
	if _, err := to.Write(header.append(nil)); err != nil {
		return err
	}
	from, err := r.fs.Open(path.Join(r.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		r.report.Lost += len(values)
		return to.Sync()
	}
	if err != nil {
		return err
	}
	defer from.Close() // opened for reading only: nothing can be lost
	at := int64(headerBytes)
	for _, l := range values {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		b := make([]byte, l.Bytes)
		err := unreadable(file, l.Offset, readFull(from, b, l.Offset))
		var h recordHeader
		if err == nil {
			h, err = l.check(b)
		}
		if errors.Is(err, kintsugi.ErrCorrupt) {
			r.report.Lost++
			continue
		}
		if err != nil {
			return err
		}
		h.Offset = at
		h.put(b)
		if _, err := to.Write(b); err != nil {
			return err
		}
		new := l
		new.Offset, new.file = at, path.Join(segmentDir, name.shard())
		r.moved[l] = new
		r.report.Salvaged++
		at += l.Bytes
	}
	return to.Sync()
}

// renew publishes shard manifests in place of those that name bad segments, and of those that were
// damaged themselves.
func (r *repairer) renew(context.Context) error {
	if err := r.fs.SyncDir(path.Join(r.dir, segmentDir)); err != nil {
		return err
	}
	for _, m := range r.shards {
		if !slices.ContainsFunc(m.Segments, func(s Segment) bool { return r.bad[s.File] }) {
			continue
		}
		r.hopeless = append(r.hopeless, m.File())
		if err := r.renewOne(m); err != nil {
			return err
		}
	}
	for _, m := range r.exact {
		if err := r.quarantine(m.File()); err != nil {
			return err
		}
		if err := r.publishShard(m); err != nil {
			return err
		}
	}
	return nil
}

func (r *repairer) renewOne(m *ShardManifest) error {
	own := m.Segments[len(m.Segments)-1].File
	name, ok := r.replaced[own]
	// Its own segment is whole, and counts among the others from now on. The new manifest has an
	// empty segment of its own name.
	if !ok {
		f, fresh, err := r.fresh(m.name())
		if err != nil {
			return err
		}
		header := segmentHeader{Name: fresh, Fingerprint: uint64(m.Fingerprint), Range: kintsugi.ChunkRange{Lo: m.Lo, Hi: m.Hi}}
		_, err = f.Write(header.append(nil))
		if err == nil {
			err = f.Sync()
		}
		if err := errors.Join(err, f.Close(), r.fs.SyncDir(path.Join(r.dir, segmentDir))); err != nil {
			return err
		}
		name = fresh
	}
	new := *m
	new.Attempt = name.Attempt
	new.Segments, new.Chunks = nil, nil
	sizes := map[string]int64{new.segment(): 0}
	var values []located
	// A chunk with a damaged record. Increments after that record are worthless.
	lost := int64(-1)
	for _, l := range m.locate(kintsugi.ChunkRange{Lo: m.Lo, Hi: m.Hi}) {
		l.Segment = 0
		chunk := int64(l.Chunk)
		if l.Increment && chunk == lost {
			continue
		}
		if r.bad[l.file] {
			if l, ok = r.moved[l]; !ok {
				lost = chunk
				continue
			}
		}
		values = append(values, l)
		sizes[l.file] = 0
	}
	if len(values) == 0 && m.Hi > m.Lo {
		return nil
	}
	index := map[string]int{}
	for _, file := range slices.SortedFunc(maps.Keys(sizes), strings.Compare) {
		info, err := r.fs.Stat(path.Join(r.dir, file))
		if err != nil {
			return err
		}
		index[file] = len(new.Segments)
		new.Segments = append(new.Segments, Segment{File: file, Bytes: info.Size})
	}
	for _, l := range values {
		l.Segment = index[l.file]
		new.Chunks = append(new.Chunks, l.Entry)
	}
	new.number()
	return r.publishShard(&new)
}

// segment returns the name of the manifest's own segment.
func (m *ShardManifest) segment() string { return path.Join(segmentDir, m.name().shard()) }

func (r *repairer) publishShard(m *ShardManifest) error {
	if err := m.check(); err != nil {
		return err
	}
	content, err := m.encode()
	if err != nil {
		return err
	}
	if err := publish(r.fs, r.dir, shardDir, m.name().shard(), content); err != nil {
		return err
	}
	r.report.Published = append(r.report.Published, m.File())
	return nil
}
