package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Retention says which full checkpoints Compact keeps.
type Retention struct {
	Newest int           // how many of the newest; 0: DefaultKeep
	Every  kintsugi.Step // of older ones, the first of each so many steps, from step Every on; 0: none
}

// DefaultKeep is how many of the newest full checkpoints Compact keeps: the newest, and one to fall
// back to if a disk has damaged it.
const DefaultKeep = 2

// CompactReport says what Compact did.
type CompactReport struct {
	Kept    []string // run manifests of whole checkpoints, newest first
	Removed []string // files, in the order of their removal
	Freed   int64    // bytes in them
}

// Compact compacts a directory once: see Compactor.
func Compact(fsys vfs.FS, dir string, keep Retention) (CompactReport, error) {
	return new(Compactor).Compact(fsys, dir, keep)
}

// Compactor compacts a directory again and again. It remembers what the older checkpoints that it
// keeps name, and does not read their manifests again: with many of them in an object store, that
// would be most of what a save costs. The zero value is ready for use. A Compactor is for one
// directory, and not safe for concurrent use.
type Compactor struct {
	older map[string][]string // what a manifest names, by its file
}

// Compact removes files that are not needed any more. It keeps
//
//   - the newest full checkpoints that Read accepts, as many as keep says, and everything they name,
//   - run manifests that are newer than the oldest of those, even damaged ones,
//   - older full checkpoints that keep says, and everything they name; a damaged one does not count,
//     but stays, with the shards' manifests of its step, for Repair,
//   - shard manifests of the newest checkpoint's step or later, if they are complete (one may be
//     about to become part of a full checkpoint) or among the newest two of their shard (one, if one
//     full checkpoint is kept), and everything that these name,
//   - segments and temporary files that may belong to a save in progress.
//
// Only one process may compact a directory: the one that publishes run manifests. Writers may go on
// saving meanwhile. A crash leaves files that the next Compact removes. No published manifest ever
// names a file that is gone.
func (x *Compactor) Compact(fsys vfs.FS, dir string, keep Retention) (CompactReport, error) {
	if keep.Newest <= 0 {
		keep.Newest = DefaultKeep
	}
	c := compactor{fs: fsys, dir: dir, keep: keep, known: x.older, older: map[string][]string{}, needed: map[string]bool{}, repair: map[fileName]bool{}, saved: map[string]bool{}, newest: map[owner][]fileName{}}
	if err := c.compact(); err != nil {
		return c.report, fmt.Errorf("compact %s: %w", dir, err)
	}
	x.older = c.older
	return c.report, nil
}

// owner is a shard on a line. Its saves are made one after the other.
type owner struct {
	line  kintsugi.Line
	shard kintsugi.ShardID
}

func (n fileName) owner() owner { return owner{n.Line, n.Shard} }

type compactor struct {
	fs     vfs.FS
	dir    string
	keep   Retention
	report CompactReport

	known, older map[string][]string // Compactor.older, before and after

	run    fileName             // newest whole checkpoint; zero: none
	needed map[string]bool      // files, relative to dir
	repair map[fileName]bool    // line and step of older checkpoints that are damaged
	saved  map[string]bool      // segments that any readable manifest names, relative to dir
	newest map[owner][]fileName // readable shard manifests, newest first
}

func (c *compactor) compact() error {
	oldRuns, err := c.chooseRuns()
	if err != nil {
		return err
	}
	oldShards, err := c.chooseShards()
	if err != nil {
		return err
	}
	oldSegments, err := c.chooseSegments()
	if err != nil {
		return err
	}
	oldTemporary, err := c.chooseTemporary()
	if err != nil {
		return err
	}
	if len(oldRuns)+len(oldShards)+len(oldSegments)+len(oldTemporary) == 0 {
		return nil
	}
	// A manifest that is visible may not be durable yet, if its publisher died before the last
	// sync. The files that it replaces must not be removed before it is.
	for _, folder := range []string{segmentDir, shardDir, runDir} {
		if err := c.fs.SyncDir(path.Join(c.dir, folder)); err != nil {
			return err
		}
	}
	// Manifests are removed, durably, before the files that they name. Otherwise a crash could
	// bring back a manifest whose files are gone.
	if err := c.remove(runDir, oldRuns); err != nil {
		return err
	}
	if err := c.remove(shardDir, oldShards); err != nil {
		return err
	}
	if err := c.remove(segmentDir, oldSegments); err != nil {
		return err
	}
	return c.remove(tmpDir, oldTemporary)
}

// chooseRuns returns the run manifests to remove, and marks what the others need.
func (c *compactor) chooseRuns() (old []string, err error) {
	names, err := List(c.fs, c.dir)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if len(c.report.Kept) == c.keep.Newest {
			return c.chooseOlder(names[i:])
		}
		_, err := c.need(name)
		if err == nil {
			_, err = Read(c.fs, c.dir, name)
		}
		switch {
		case err == nil:
			if len(c.report.Kept) == 0 {
				c.run, _ = parseIn(runDir, name)
			}
			c.report.Kept = append(c.report.Kept, name)
		case !errors.Is(err, kintsugi.ErrCorrupt):
			return nil, err
		}
	}
	return nil, nil
}

// need returns the shard manifests that a run manifest names, and marks them, even if they are
// damaged: somebody may want to look at the rest.
func (c *compactor) need(name string) (shards []string, err error) {
	shards, known := c.known[name]
	if !known {
		b, err := readAll(c.fs, c.dir, name, maxManifest)
		if err != nil {
			return nil, err
		}
		m, err := decodeRun(name, b)
		if err != nil {
			return nil, err
		}
		for _, ref := range m.Shards {
			shards = append(shards, ref.File)
		}
	}
	for _, file := range shards {
		c.needed[file] = true
	}
	return shards, nil
}

// chooseOlder returns which of the run manifests to remove that are older than the newest ones that
// are kept, and marks what the others need.
func (c *compactor) chooseOlder(names []string) (old []string, err error) {
	if c.keep.Every == 0 {
		return names, nil
	}
	var kept []string
	has := make(map[kintsugi.Step]bool) // by number of the period: its first checkpoint is found
	for _, name := range slices.Backward(names) {
		n, _ := parseIn(runDir, name)
		period := n.Step / c.keep.Every
		if period == 0 || has[period] {
			old = append(old, name)
			continue
		}
		shards, err := c.need(name)
		if _, known := c.known[name]; err == nil && !known {
			_, err = Read(c.fs, c.dir, name)
		}
		switch {
		case err == nil:
			c.older[name] = shards
			has[period], kept = true, append(kept, name)
		case errors.Is(err, kintsugi.ErrCorrupt):
			c.repair[fileName{Line: n.Line, Step: n.Step}] = true
		default:
			return nil, err
		}
	}
	slices.Reverse(kept)
	c.report.Kept = append(c.report.Kept, kept...)
	return old, nil
}

// chooseShards returns the shard manifests to remove, and marks the segments that the others need.
func (c *compactor) chooseShards() (old []string, err error) {
	names, err := listNames(c.fs, c.dir, shardDir, parseShardName)
	if err != nil {
		return nil, err
	}
	known := func(file string) bool { return c.known[file] != nil && c.needed[file] }
	var unknown []string
	for _, n := range slices.Backward(names) {
		if file := path.Join(shardDir, n.shard()); !known(file) {
			unknown = append(unknown, file)
		}
	}
	next, stop := iter.Pull2(readShards(c.fs, c.dir, unknown))
	defer stop()
	for _, n := range slices.Backward(names) {
		file := path.Join(shardDir, n.shard())
		if known(file) {
			c.keepShard(n, c.known[file])
			continue
		}
		_, r, _ := next()
		if r.err != nil && !errors.Is(r.err, kintsugi.ErrCorrupt) {
			return nil, r.err
		}
		m := r.m
		newer := len(c.newest[n.owner()])
		keep := c.needed[file] || c.repair[fileName{Line: n.Line, Step: n.Step}]
		switch {
		case n.before(c.run):
			// Only a full checkpoint can need it.
		case m == nil:
			keep = keep || newer == 0
		default:
			keep = keep || m.Complete() || newer < min(c.keep.Newest, DefaultKeep)
		}
		var segments []string
		if m != nil {
			for _, s := range m.Segments {
				segments = append(segments, s.File)
				c.saved[s.File] = true
			}
		}
		switch {
		case !keep:
			old = append(old, file)
			if m != nil {
				c.newest[n.owner()] = append(c.newest[n.owner()], n)
			}
		case m == nil:
			c.needed[path.Join(segmentDir, n.shard())] = true // this segment is known all the same
		default:
			c.keepShard(n, segments)
		}
	}
	return old, nil
}

// keepShard notes a readable shard manifest that is kept, and marks what it names.
func (c *compactor) keepShard(n fileName, segments []string) {
	c.newest[n.owner()] = append(c.newest[n.owner()], n)
	c.needed[path.Join(segmentDir, n.shard())] = true
	for _, s := range segments {
		c.saved[s], c.needed[s] = true, true
	}
	if n.before(c.run) {
		c.older[path.Join(shardDir, n.shard())] = segments
	}
}

// over reports whether no save can be in progress that will still publish something of this name
// that matters. That is so if there is a full checkpoint of a later step, or if the same writer has
// published a later save. A later save by a writer of another fence does not show it, since that
// one has not waited for this one.
func (c *compactor) over(n fileName) bool {
	return n.before(c.run) || slices.ContainsFunc(c.newest[n.owner()], func(m fileName) bool {
		return m.Fence == n.Fence && n.compare(m) < 0
	})
}

func (c *compactor) chooseSegments() (old []string, err error) {
	names, err := listNames(c.fs, c.dir, segmentDir, parseShardName)
	for _, n := range names {
		if file := path.Join(segmentDir, n.shard()); !c.needed[file] && (c.saved[file] || c.over(n)) {
			old = append(old, file)
		}
	}
	return old, err
}

func (c *compactor) chooseTemporary() (old []string, err error) {
	files, err := listFolder(c.fs, c.dir, tmpDir)
	for _, f := range files {
		folder, name, _ := strings.Cut(f, "-")
		name, _, _ = strings.Cut(name, ".")
		n, ok := parseIn(folder, path.Join(folder, name))
		if !ok {
			continue // not a file of this package
		}
		if folder == runDir && n.before(c.run) || folder == shardDir && c.over(n) || folder == lineDir && n.Line < c.run.Line {
			old = append(old, path.Join(tmpDir, f))
		}
	}
	return old, err
}

// remove removes files of one folder, durably. If it fails, any of them may be gone.
func (c *compactor) remove(folder string, old []string) error {
	type removed struct {
		size int64
		err  error
	}
	for i, r := range askEach(c.fs, len(old), func(i int) (r removed) {
		name := path.Join(c.dir, old[i])
		var info vfs.Info
		if info, r.err = c.fs.Stat(name); r.err == nil {
			r.size, r.err = info.Size, c.fs.Remove(name)
		}
		return r
	}) {
		if errors.Is(r.err, fs.ErrNotExist) {
			continue // its writer was done with it and removed it first
		}
		if r.err != nil {
			return r.err
		}
		c.report.Removed = append(c.report.Removed, old[i])
		c.report.Freed += r.size
	}
	if len(old) == 0 {
		return nil
	}
	return c.fs.SyncDir(path.Join(c.dir, folder))
}
