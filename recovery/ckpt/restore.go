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

// ChunkInfo says what a checkpoint has of a chunk.
type ChunkInfo struct {
	Chunk       kintsugi.ChunkID
	Line        kintsugi.Line
	Step        kintsugi.Step // version of the values
	Optimizer   uint64        // optimizer steps that the chunk had taken
	Rule        kintsugi.Rule
	Values      int // in each array
	StateArrays int

	// Velocity is the change of the parameters in one step, if saved values coast; nil: they do
	// not. Place must not keep it.
	Velocity []float32
}

// Place returns where the values of a chunk go. Params and State must have ChunkInfo.Values values
// each; those that are nil are not wanted. A restore writes to them only after it has verified the
// checksum of the whole chunk.
type Place func(ChunkInfo) (Arrays, error)

// located is an entry of a shard manifest, with what the header of its record must say.
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

// Restore reads the chunks in want from a full checkpoint, whatever shards it was saved from. Each
// chunk is placed once, in no particular order.
//
// Errors: kintsugi.ErrOtherModel (the tensors differ), kintsugi.ErrCorrupt (a *Damage with file,
// offset, chunk and tensor; some chunks may have been placed already, so restore all from an older
// checkpoint), and the errors of place.
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
	refs := slices.DeleteFunc(slices.Clone(m.Shards), func(ref ShardRef) bool { return ref.Hi <= want.Lo || want.Hi <= ref.Lo })
	var list []located
	for _, s := range m.readShards(fsys, dir, refs, nil) {
		if s.err != nil {
			return s.err
		}
		list = append(list, s.m.locate(want)...)
	}
	if len(list) != int(want.Hi-want.Lo) {
		return damaged(m.Name(), -1, "it holds %d of the chunks [%d, %d)", len(list), want.Lo, want.Hi)
	}
	r := newReader(fsys, dir, layout, place)
	return r.read(ctx, list, func(_ located, err error) error { return err })
}

// RunningReport says what RestoreRunning found.
type RunningReport struct {
	// Missing are the chunks that were never saved on these lines, or of which no saved value is
	// whole.
	Missing []kintsugi.ChunkID

	// Skipped lists the damage because of which an older value was used.
	Skipped []error
}

// Lines are the lines [First, Last]. After a partial restore, a run goes on with its state in
// memory, on a new line. So what was saved on the lines before is as good as what was saved on the
// newest line, only older.
type Lines struct {
	First, Last kintsugi.Line

	Run string // only its own lines and those that it began with; empty: of any run
}

// RestoreRunning reads the newest saved value of each chunk in want, of any step on the lines: what
// partial recovery restores after a loss. If a value is damaged, an older one is used. Each chunk
// is placed at most once.
//
// Errors: kintsugi.ErrOtherModel, errors of the disk that may pass, and the errors of place.
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
	r := newReader(fsys, dir, layout, place)
	ids := make([]kintsugi.ChunkID, 0, len(saved)) // still to be placed
	for id := want.Lo; id < want.Hi; id++ {
		ids = append(ids, id)
	}
	for age := 0; len(ids) > 0; age++ { // the newest values first; the values before for those that are damaged
		var list []value
		for _, id := range ids {
			if values := saved[id-want.Lo]; age < len(values) {
				list = append(list, values[age])
			} else {
				report.Missing = append(report.Missing, id)
			}
		}
		ids = ids[:0]
		err := r.values(ctx, list, func(l located, err error) error {
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

// value is what is saved of a chunk at one step: its record last, and before it those that it is
// added to. The first record is not an increment.
type value []located

// last returns the last record of the value.
func (v value) last() located { return v[len(v)-1] }

// savedValues returns, by chunk of want, all values that shard manifests of the lines name, newest
// first.
func savedValues(fsys vfs.FS, dir string, lines Lines, layout *kintsugi.Layout, want kintsugi.ChunkRange) (saved [][]value, skipped []error, err error) {
	names, err := listNames(fsys, dir, shardDir, parseShardName)
	if err != nil {
		return nil, nil, err
	}
	owners := &owners{}
	if lines.Run != "" {
		if owners, err = ownersOf(fsys, dir, lines.Run); err != nil {
			return nil, nil, err
		}
	}
	wanted := make([]string, 0, len(names)) // newest first
	for _, n := range slices.Backward(names) {
		if n.Line < lines.First || n.Line > lines.Last {
			continue
		}
		if ours, err := owners.reads(n.Line); err != nil {
			return nil, nil, err
		} else if ours {
			wanted = append(wanted, path.Join(shardDir, n.shard()))
		}
	}
	saved = make([][]value, want.Hi-want.Lo)
	for _, r := range readShards(fsys, dir, wanted) {
		if errors.Is(r.err, kintsugi.ErrCorrupt) {
			skipped = append(skipped, r.err)
			continue
		}
		if r.err != nil {
			return nil, skipped, r.err
		}
		m := r.m
		if m.Fingerprint != Fingerprint(layout.Fingerprint()) {
			return nil, skipped, fmt.Errorf("%s has fingerprint %016x, the model has %016x: %w",
				m.File(), uint64(m.Fingerprint), layout.Fingerprint(), kintsugi.ErrOtherModel)
		}
		var chain value
		for _, l := range m.locate(want) {
			l.Segment = 0 // an index into its own manifest, which is not part of the value
			if !l.Increment {
				chain = nil
			}
			chain = append(chain, l)
			values := &saved[l.Chunk-want.Lo]
			if !slices.ContainsFunc(*values, func(v value) bool { return v.last() == l }) {
				*values = append(*values, chain[:len(chain):len(chain)])
			}
		}
	}
	for _, values := range saved {
		// A manifest with a greater name may still name an older value of a chunk.
		slices.SortStableFunc(values, func(a, b value) int {
			return cmp.Or(cmp.Compare(b.last().line, a.last().line), cmp.Compare(b.last().Step, a.last().Step))
		})
	}
	return saved, skipped, nil
}
