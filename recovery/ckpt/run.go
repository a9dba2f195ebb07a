package ckpt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

const runFormat = "kintsugi run manifest"

// RunManifest names the shard manifests that together are the whole model at one step. It is
// immutable once published, and a full checkpoint exists as soon as its run manifest does.
type RunManifest struct {
	Format      string            `json:"format"`
	Version     int               `json:"version"`
	Line        kintsugi.Line     `json:"line"`
	Step        kintsugi.Step     `json:"step"`
	Fence       kintsugi.Fence    `json:"fence"` // of the conductor that published it
	Created     time.Time         `json:"created"`
	Model       string            `json:"model"` // its name, for people: Tensors decide what fits
	Seed        uint64            `json:"seed"`
	Rule        kintsugi.Rule     `json:"rule"`
	Fingerprint Fingerprint       `json:"fingerprint"` // of the layout of Tensors
	Notes       map[string]string `json:"notes"`       // any keys that a run wants to find again
	Tensors     []kintsugi.Tensor `json:"tensors"`

	// Invariant: Shards ascend by number from 0, and their ranges follow one another from chunk 0.
	Shards []ShardRef `json:"shards"`
}

// Name returns the name of the manifest, relative to the checkpoint's directory.
func (m *RunManifest) Name() string { return path.Join(runDir, m.name().run()) }

func (m *RunManifest) name() fileName {
	return fileName{Line: m.Line, Step: m.Step, Fence: m.Fence}
}

func (m *RunManifest) encode() ([]byte, error) {
	var j jsonLines
	j.field("format", m.Format)
	j.field("version", m.Version)
	j.field("line", m.Line)
	j.field("step", m.Step)
	j.field("fence", m.Fence)
	j.field("created", m.Created)
	j.field("model", m.Model)
	j.field("seed", m.Seed)
	j.field("rule", m.Rule)
	j.field("fingerprint", m.Fingerprint)
	j.field("notes", m.Notes)
	writeList(&j, "tensors", m.Tensors)
	writeList(&j, "shards", m.Shards)
	return j.seal()
}

func decodeRun(file string, b []byte) (*RunManifest, error) {
	m := new(RunManifest)
	if err := decodeManifest(file, runFormat, plainVersion, b, m); err != nil {
		return nil, err
	}
	if err := checkManifest(file, b, m, m.Name); err != nil {
		return nil, err
	}
	return m, nil
}

// maxValues bounds the parameters of a model, far above any real one, so that sizes fit into an
// int.
const maxValues = 1 << 48

// check tests the invariants, and bounds every number that a reader multiplies or allocates by.
func (m *RunManifest) check() error {
	if err := m.Rule.Check(); err != nil {
		return err
	}
	values, err := checkTensors(m.Tensors)
	if err != nil {
		return err
	}
	if f := fingerprint(m.Tensors); m.Fingerprint != f {
		return fmt.Errorf("fingerprint %016x, the tensors have %016x", m.Fingerprint, f)
	}
	next := kintsugi.ChunkID(0)
	for i, s := range m.Shards {
		name, ok := parseIn(shardDir, s.File)
		switch {
		case !ok:
			return fmt.Errorf("%q is no name of a shard manifest", s.File)
		case int(s.Shard) != i || name.Shard != s.Shard:
			return fmt.Errorf("shard %d (%s) in place of shard %d", s.Shard, s.File, i)
		case name.Line != m.Line || name.Step != m.Step:
			return fmt.Errorf("shard manifest %s is of another line or step", s.File)
		case s.Lo != next || s.Hi < s.Lo:
			return fmt.Errorf("shard %d has chunks [%d, %d), want [%d, …)", s.Shard, s.Lo, s.Hi, next)
		case s.Bytes < 0 || s.Bytes > maxManifest || int64(s.Hi-s.Lo) > s.Bytes/entryBytes:
			return fmt.Errorf("shard %d has chunks [%d, %d) in a manifest of %d bytes", s.Shard, s.Lo, s.Hi, s.Bytes)
		}
		next = s.Hi
	}
	if next == 0 {
		return errors.New("there are no chunks in it")
	}
	if int64(values) > int64(next)*kintsugi.MaxChunkValues { // otherwise a layout of them could take any amount of memory
		return fmt.Errorf("%d values in %d chunks", values, next)
	}
	return nil
}

// entryBytes is less than the shortest line of a chunk in a shard manifest.
const entryBytes = 64

// checkTensors checks what kintsugi.NewLayout checks, and that the sizes can be multiplied. It
// returns the number of values of the tensors.
func checkTensors(tensors []kintsugi.Tensor) (values int, err error) {
	for i, t := range tensors {
		if t.Name == "" || !utf8.ValidString(t.Name) || len(t.Shape) == 0 {
			return 0, fmt.Errorf("tensor %d has name %q and shape %v; it needs a name in UTF-8 and a shape", i, t.Name, t.Shape)
		}
		n := 1
		for _, d := range t.Shape {
			if d <= 0 || d > maxValues/n {
				return 0, fmt.Errorf("tensor %s has shape %v", t.Name, t.Shape)
			}
			n *= d
		}
		if values += n; values > maxValues {
			return 0, fmt.Errorf("more than %d values", maxValues)
		}
	}
	if values == 0 {
		return 0, errors.New("there are no tensors in it")
	}
	return values, nil
}

func fingerprint(tensors []kintsugi.Tensor) Fingerprint {
	return Fingerprint((&kintsugi.Layout{Tensors: tensors}).Fingerprint())
}

// Fits returns a kintsugi.ErrOtherModel that names the first tensor that differs, if the checkpoint
// is not one of the given model.
func (m *RunManifest) Fits(layout *kintsugi.Layout) error {
	for i := range max(len(m.Tensors), len(layout.Tensors)) {
		switch {
		case i >= len(layout.Tensors):
			return fmt.Errorf("checkpoint %s holds tensor %s %v, which the model does not have: %w",
				m.Name(), m.Tensors[i].Name, m.Tensors[i].Shape, kintsugi.ErrOtherModel)
		case i >= len(m.Tensors):
			return fmt.Errorf("checkpoint %s lacks tensor %s %v of the model: %w",
				m.Name(), layout.Tensors[i].Name, layout.Tensors[i].Shape, kintsugi.ErrOtherModel)
		}
		have, want := m.Tensors[i], layout.Tensors[i]
		if have.Name != want.Name || !slices.Equal(have.Shape, want.Shape) {
			return fmt.Errorf("checkpoint %s of model %q has tensor %d as %s %v, the model has %s %v: %w",
				m.Name(), m.Model, i, have.Name, have.Shape, want.Name, want.Shape, kintsugi.ErrOtherModel)
		}
	}
	return nil
}

// PublishRun makes a full checkpoint exist. m has Line, Step, Fence, Created, Model, Seed, Rule,
// Tensors and Notes; PublishRun sets the rest of m. shards are the files of the shard manifests
// (ShardRef.File, kintsugi.Saved.Manifest), in any order.
//
// PublishRun reads each shard manifest again. It publishes nothing unless all of them are complete,
// of this line, step, rule and model, and cover the model once. So what is published can be
// restored.
//
// The error is ErrPublished if the name exists with other content. After an error of the disk, the
// manifest may or may not have been published; call PublishRun again with the same m to find out.
func PublishRun(fsys vfs.FS, dir string, m *RunManifest, shards []string) error {
	m.Format, m.Version = runFormat, plainVersion
	m.Created = m.Created.UTC().Round(0)
	m.Fingerprint = fingerprint(m.Tensors)
	m.Shards = nil
	if m.Notes == nil {
		m.Notes = map[string]string{}
	}
	describe := func(err error) error {
		return fmt.Errorf("publish checkpoint of line %d step %d: %w", m.Line, m.Step, err)
	}
	for i, r := range readShards(fsys, dir, shards) {
		s, ref, err, file := r.m, r.ref, r.err, shards[i]
		if name, ok := parseIn(shardDir, file); ok && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: shard %d was saved somewhere else than in %s, or it was removed", err, name.Shard, dir)
		}
		if err == nil {
			err = m.accepts(s)
		}
		if err == nil {
			err = s.checkSegments(fsys, dir)
		}
		if err != nil {
			return describe(err)
		}
		m.Shards = append(m.Shards, ref)
	}
	slices.SortFunc(m.Shards, func(a, b ShardRef) int { return cmp.Compare(a.Shard, b.Shard) })
	if err := m.check(); err != nil {
		return describe(err)
	}
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		return describe(err)
	}
	if last := m.Shards[len(m.Shards)-1].Hi; int(last) != len(layout.Chunks) {
		return describe(fmt.Errorf("the shards hold %d chunks, the model has %d", last, len(layout.Chunks)))
	}
	content, err := m.encode()
	if err == nil {
		// A manifest that cannot be read back (with a note that is not UTF-8, or a year of five
		// digits) must not be published.
		_, err = decodeRun(m.Name(), content)
	}
	if err == nil {
		err = makeFolders(fsys, dir)
	}
	if err == nil {
		// A server that died between link and sync has left a name that is visible but not durable.
		err = fsys.SyncDir(path.Join(dir, shardDir))
	}
	if err == nil {
		err = publish(fsys, dir, runDir, m.name().run(), content)
	}
	if err != nil {
		return describe(err)
	}
	return nil
}

// accepts returns an error if a shard manifest cannot be part of the checkpoint.
func (m *RunManifest) accepts(s *ShardManifest) error {
	switch {
	case s.Line != m.Line || s.Step != m.Step:
		return fmt.Errorf("%s is of line %d step %d", s.File(), s.Line, s.Step)
	case s.Rule != m.Rule:
		return fmt.Errorf("%s has rule %d, the run has rule %d", s.File(), s.Rule, m.Rule)
	case s.Fingerprint != m.Fingerprint:
		return fmt.Errorf("%s has fingerprint %016x, the model has %016x: %w",
			s.File(), s.Fingerprint, m.Fingerprint, kintsugi.ErrOtherModel)
	case !s.Complete():
		return fmt.Errorf("%s does not hold all chunks [%d, %d) at step %d: save the whole shard", s.File(), s.Lo, s.Hi, s.Step)
	}
	return nil
}

// Read reads the run manifest of that name (RunManifest.Name) and checks the files that it names:
// shard manifests by their checksums, segments by their sizes. It does not read the chunks: Verify
// does. Errors are kintsugi.ErrCorrupt (damaged or missing) and kintsugi.ErrOtherModel (newer
// format).
func Read(fsys vfs.FS, dir, name string) (*RunManifest, error) {
	m, _, err := readRun(fsys, dir, name)
	return m, err
}

// ReadEach yields what Read returns for each name, in that order. If the file system is far away, it
// reads several at once, and some that nobody asks for if the loop ends early.
func ReadEach(fsys vfs.FS, dir string, names []string) iter.Seq2[*RunManifest, error] {
	type read struct {
		m   *RunManifest
		err error
	}
	return func(yield func(*RunManifest, error) bool) {
		for _, r := range askEach(fsys, len(names), func(i int) (r read) {
			r.m, r.err = Read(fsys, dir, names[i])
			return r
		}) {
			if !yield(r.m, r.err) {
				return
			}
		}
	}
}

// readRun is Read, and also returns the shard manifests.
func readRun(fsys vfs.FS, dir, name string) (*RunManifest, []*ShardManifest, error) {
	if _, ok := parseIn(runDir, name); !ok {
		return nil, nil, fmt.Errorf("%q is no name of a run manifest: %w", name, kintsugi.ErrUsage)
	}
	b, err := readAll(fsys, dir, name, maxManifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := decodeRun(name, b)
	if err != nil {
		return nil, nil, err
	}
	var shards []*ShardManifest
	for _, s := range m.readShards(fsys, dir, m.Shards, (*ShardManifest).checkSegments) {
		if s.err != nil {
			return nil, nil, s.err
		}
		shards = append(shards, s.m)
	}
	return m, shards, nil
}

// readShards is readShard for some of the shards of m, in that order, and checks each if check is not
// nil.
func (m *RunManifest) readShards(fsys vfs.FS, dir string, refs []ShardRef, check func(*ShardManifest, vfs.FS, string) error) iter.Seq2[int, shardRead] {
	return askEach(fsys, len(refs), func(i int) (r shardRead) {
		r.ref = refs[i]
		if r.m, r.err = m.readShard(fsys, dir, r.ref); r.err == nil && check != nil {
			r.err = check(r.m, fsys, dir)
		}
		return r
	})
}

// readShard reads a shard manifest and checks that it is the one that m was published with.
func (m *RunManifest) readShard(fsys vfs.FS, dir string, ref ShardRef) (*ShardManifest, error) {
	s, got, err := ReadShard(fsys, dir, ref.File)
	if err != nil {
		return nil, err
	}
	if got != ref {
		return nil, damaged(ref.File, 0, "%d bytes with CRC32C %08x, %s says %d bytes with %08x",
			got.Bytes, got.CRC, m.Name(), ref.Bytes, ref.CRC)
	}
	if err := m.accepts(s); err != nil {
		return nil, damaged(ref.File, 0, "%w", err)
	}
	return s, nil
}

// List returns the names of all run manifests, newest first. It does not read them.
func List(fsys vfs.FS, dir string) ([]string, error) { return ListOf(fsys, dir, "") }

// ListOf is List for one run: it returns the run's own manifests, and those that were there when it
// took the place. An empty run means all runs.
func ListOf(fsys vfs.FS, dir, run string) ([]string, error) {
	names, err := listNames(fsys, dir, runDir, parseRunName)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", dir, err)
	}
	files := make([]string, 0, len(names))
	if run == "" {
		for _, n := range slices.Backward(names) {
			files = append(files, path.Join(runDir, n.run()))
		}
		return files, nil
	}
	owners, err := ownersOf(fsys, dir, run)
	if err != nil {
		return nil, err
	}
	for _, n := range slices.Backward(names) {
		seen, err := owners.sees(n)
		if err != nil {
			return nil, fmt.Errorf("list checkpoints of run %s in %s: %w", run, dir, err)
		}
		if seen {
			files = append(files, path.Join(runDir, n.run()))
		}
	}
	return files, nil
}

// LastLine returns the greatest line that any file belongs to, 0 if there is none. It includes
// damaged and unpublished files, and claims. A new line must be greater; otherwise the names of its
// saves might be taken by those files.
func LastLine(fsys vfs.FS, dir string) (kintsugi.Line, error) {
	type listed struct {
		names []fileName
		err   error
	}
	var last kintsugi.Line
	folders := [...]struct {
		name  string
		parse func(string) (fileName, bool)
	}{{runDir, parseRunName}, {shardDir, parseShardName}, {segmentDir, parseShardName}, {lineDir, parseClaimName}}
	for _, l := range askEach(fsys, len(folders), func(i int) (l listed) {
		l.names, l.err = listNames(fsys, dir, folders[i].name, folders[i].parse)
		return l
	}) {
		if l.err != nil {
			return 0, fmt.Errorf("list checkpoints in %s: %w", dir, l.err)
		}
		if len(l.names) > 0 {
			last = max(last, l.names[len(l.names)-1].Line)
		}
	}
	return last, nil
}

// listNames returns the names in a folder that parse, ascending. A folder that does not exist is
// empty. Other files do not belong to this package and are left alone.
func listNames(fsys vfs.FS, dir, folder string, parse func(string) (fileName, bool)) ([]fileName, error) {
	files, err := listFolder(fsys, dir, folder)
	var names []fileName
	for _, f := range files {
		if n, ok := parse(f); ok {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, fileName.compare)
	return names, err
}

// Newest returns the newest whole checkpoint: the greatest (line, step, fence) that Read accepts.
// skipped lists the damage of newer checkpoints: tell the user. The error is ErrNoCheckpoint if
// there is none. It is an error if a checkpoint is of a newer format, or cannot be read at present
// (no permission, say), because going on from an older one would silently lose work.
func Newest(fsys vfs.FS, dir string) (m *RunManifest, skipped []error, err error) {
	return NewestOf(fsys, dir, "")
}

// NewestOf is Newest for one run: see ListOf.
func NewestOf(fsys vfs.FS, dir, run string) (m *RunManifest, skipped []error, err error) {
	names, err := ListOf(fsys, dir, run)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		m, err := Read(fsys, dir, name)
		switch {
		case err == nil:
			return m, skipped, nil
		case !errors.Is(err, kintsugi.ErrCorrupt):
			return nil, skipped, fmt.Errorf("read checkpoint %s: %w", name, err)
		}
		skipped = append(skipped, fmt.Errorf("skip checkpoint %s: %w", name, err))
	}
	return nil, skipped, fmt.Errorf("%s: %w", dir, ErrNoCheckpoint)
}
