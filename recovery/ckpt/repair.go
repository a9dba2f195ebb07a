package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// quarantineDir is where Repair puts damaged files. Nothing reads them; Repair looks for the names of
// manifests there.
const quarantineDir = "quarantine"

// RepairConfig says what Repair cannot know.
type RepairConfig struct {
	Now time.Time // time of creation of the manifests that it publishes

	// Model has the Model, Seed and Tensors of the run. It is needed only if every run manifest is
	// damaged; otherwise it may be nil.
	Model *RunManifest
}

// RepairReport says what Repair found and did.
type RepairReport struct {
	Damage      []error  // what Verify found
	Quarantined []string // files, by their former names
	Published   []string // new manifests
	Salvaged    int      // values of chunks that were copied from damaged segments
	Lost        int      // values of chunks that manifests name and that are damaged or missing

	// Nameless are the steps, ascending, that would be checkpoints if the tensors of their chunks
	// were known: no run manifest of that model is left, and RepairConfig.Model is not of it.
	Nameless []kintsugi.Step
}

// Repair makes a directory whole again: afterwards Verify finds no damage, and everything that was
// whole can still be restored. No process may write to the directory meanwhile. Repair deletes
// nothing:
//
//   - damaged files, and manifests that name damaged or missing files, move to DIR/quarantine/;
//   - values that are whole in a damaged segment are copied to a new segment, and a shard manifest
//     is published that names them;
//   - a shard manifest that is damaged or missing is written again from its segment, if the whole
//     segment is undamaged;
//   - a run manifest is published for each step whose chunks are all whole, if the step's own
//     manifest is damaged, or if the step is newer than the newest whole checkpoint and had no
//     manifest.
//
// After an error or a crash, every whole checkpoint is still whole. Call Repair again: it brings back
// what one that nothing had disturbed does.
func Repair(ctx context.Context, fsys vfs.FS, dir string, c RepairConfig) (RepairReport, error) {
	r := repairer{
		fs: fsys, dir: dir, cfg: c,
		v: verifier{
			fs: fsys, dir: dir, progress: func(int64, int64) {},
			shards: map[string]*ShardManifest{}, sums: map[string]ShardRef{}, segments: map[string]*segmentUse{},
			wrong: map[string][]error{}, tensors: map[Fingerprint][]kintsugi.Tensor{},
		},
		bad: map[string]bool{}, moved: map[located]located{}, attempts: map[fileName]uint32{}, replaced: map[string]fileName{},
	}
	err := r.repair(ctx)
	r.report.Damage = r.v.report.Damage
	if err != nil {
		return r.report, fmt.Errorf("repair %s: %w", dir, err)
	}
	return r.report, nil
}

type repairer struct {
	fs     vfs.FS
	dir    string
	cfg    RepairConfig
	v      verifier
	report RepairReport

	shards   []*ShardManifest    // those that can be read or were written again, ascending by name
	exact    []*ShardManifest    // those of shards whose file is to be written again as it was
	hopeless []string            // shard manifests that are neither
	bad      map[string]bool     // segments that are damaged or missing
	replaced map[string]fileName // by bad segment: the new segment with its whole values
	moved    map[located]located // by value in a bad segment: the same value in a new one
	attempts map[fileName]uint32 // by name without attempt: the next free attempt
	lost     []fileName          // of run manifests that were damaged, now or in a repair before
}

func (r *repairer) repair(ctx context.Context) error {
	if err := r.v.verify(ctx); err != nil {
		return err
	}
	if err := makeFolders(r.fs, r.dir); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.gather, r.salvage, r.renew, r.putAway, r.publishRuns} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gather finds out which manifests exist or can be written again, and which segments are damaged.
func (r *repairer) gather(ctx context.Context) error {
	for _, folder := range []string{shardDir, segmentDir} {
		names, err := listNames(r.fs, r.dir, folder, parseShardName)
		if err != nil {
			return err
		}
		for _, n := range names {
			next := n.Attempt + 1
			n.Attempt = 0
			r.attempts[n] = max(r.attempts[n], next)
		}
	}
	for file := range r.v.segments {
		r.bad[file] = len(r.v.wrong[file]) > 0
	}
	r.shards = slices.Collect(maps.Values(r.v.shards))
	if err := r.rebuildAll(ctx); err != nil {
		return err
	}
	slices.SortFunc(r.shards, func(a, b *ShardManifest) int { return a.name().compare(b.name()) })
	return nil
}

// rebuildAll writes shard manifests again: those that are damaged, those that a run manifest names
// and that are missing, and those of whole segments that have none.
func (r *repairer) rebuildAll(ctx context.Context) error {
	names := map[fileName]bool{} // those that are damaged or missing
	for file := range r.v.wrong {
		if name, ok := parseIn(shardDir, file); ok && r.v.shards[file] == nil {
			names[name] = true
		}
	}
	segments, err := listNames(r.fs, r.dir, segmentDir, parseShardName)
	if err != nil {
		return err
	}
	for _, name := range segments {
		if r.v.shards[path.Join(shardDir, name.shard())] == nil && r.v.segments[path.Join(segmentDir, name.shard())] == nil {
			if !names[name] {
				names[name] = false
			}
		}
	}
	for name, missed := range names {
		m, whole, err := r.rebuild(ctx, name)
		if err != nil {
			return err
		}
		switch {
		case m != nil && whole && !r.bad[m.segment()]:
			r.exact, r.shards = append(r.exact, m), append(r.shards, m)
		case !missed: // left by a crash during a save
		case m != nil:
			r.bad[m.segment()] = true
			r.shards = append(r.shards, m)
		default:
			r.hopeless = append(r.hopeless, path.Join(shardDir, name.shard()))
		}
	}
	return nil
}

// rebuild writes a shard manifest again from its segment. Values that it named in older segments
// are in the manifests of those. m is nil if there is no such segment; whole says whether every
// byte of the segment is right.
func (r *repairer) rebuild(ctx context.Context, name fileName) (m *ShardManifest, whole bool, err error) {
	file := path.Join(segmentDir, name.shard())
	info, err := r.fs.Stat(path.Join(r.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	f, err := r.fs.Open(path.Join(r.dir, file))
	if err != nil {
		return nil, false, err
	}
	defer f.Close() // opened for reading only: nothing can be lost
	h, err := readSegmentHeader(f, file)
	if errors.Is(err, kintsugi.ErrCorrupt) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	m = &ShardManifest{
		Format: shardFormat, Version: plainVersion, Line: name.Line, Step: name.Step, Fence: name.Fence, Shard: name.Shard, Attempt: name.Attempt,
		Fingerprint: Fingerprint(h.Fingerprint), Lo: h.Range.Lo, Hi: h.Range.Hi, Segments: []Segment{{File: file, Bytes: info.Size}},
	}
	whole = true
	var buffer []byte
	for pos := int64(headerBytes); pos < info.Size; {
		if err := context.Cause(ctx); err != nil {
			return nil, false, err
		}
		b, record, err := readRecord(f, file, pos, buffer)
		if errors.Is(err, kintsugi.ErrCorrupt) {
			whole = false // what follows cannot be found without its length
			break
		}
		if err != nil {
			return nil, false, err
		}
		buffer = b
		switch err := checkRecord(b, record); {
		case err == nil && record.Increment: // only the manifest knew what it is added to
		case err == nil:
			m.Rule = record.Rule
			m.Chunks = append(m.Chunks, Entry{Chunk: record.Chunk, Step: record.Step, Offset: pos, Bytes: int64(record.bytes()), CRC: Sum(record.PayloadCRC)})
		default:
			whole = false
		}
		pos += int64(record.bytes())
	}
	if len(m.Chunks) == 0 || m.check() != nil {
		return nil, false, nil
	}
	return m, whole, nil
}
