package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

var (
	errFull      = errors.New("no space left on device")
	errStore     = errors.New("input/output error")
	errPublished = errors.New("another checkpoint has this name")
)

// store simulates the store of checkpoints: a name is created once and never written again.
type store struct {
	c     *Cluster
	slow  time.Duration // until this time
	full  time.Duration
	bad   time.Duration
	parts map[string]*part
	saved map[kintsugi.ChunkID][]savedChunk // in the order of saving
	runs  []*manifest                       // ascending by (line, step, fence)
}

// part is the version of one shard in a checkpoint.
type part struct {
	line   kintsugi.Line
	step   kintsugi.Step
	shard  kintsugi.ShardID
	chunks kintsugi.ChunkRange
	values []uint64
}

// savedChunk is a chunk in the running checkpoint, or in a part.
type savedChunk struct {
	line  kintsugi.Line
	step  kintsugi.Step
	value uint64
}

// manifest is a run manifest.
type manifest struct {
	name  string
	line  kintsugi.Line
	step  kintsugi.Step
	fence kintsugi.Fence
	parts []string // by shard
}

func (a *manifest) compare(b *manifest) int {
	return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.step, b.step), cmp.Compare(a.fence, b.fence))
}

// took draws the duration of an operation of the store.
func (s *store) took() time.Duration {
	if s.slow > s.c.now {
		return s.c.between(100*time.Millisecond, 3*time.Second)
	}
	return s.c.between(time.Millisecond, 15*time.Millisecond)
}

func (s *store) writeError() error {
	switch {
	case s.bad > s.c.now:
		return errStore
	case s.full > s.c.now:
		return errFull
	}
	return nil
}

// write saves a part under a new name.
func (s *store) write(x *part, fence kintsugi.Fence) (string, error) {
	if err := s.writeError(); err != nil {
		return "", err
	}
	for attempt := 0; ; attempt++ {
		name := fmt.Sprintf("%d-%d-%d-%d-%d", x.line, x.step, fence, x.shard, attempt)
		if s.parts[name] == nil {
			s.parts[name] = x
			for i, value := range x.values {
				id := x.chunks.Lo + kintsugi.ChunkID(i)
				s.saved[id] = append(s.saved[id], savedChunk{x.line, x.step, value})
			}
			return name, nil
		}
	}
}

// publish creates a run manifest, unless its name already exists with another content.
func (s *store) publish(m *manifest) error {
	if err := s.writeError(); err != nil {
		return err
	}
	m.name = fmt.Sprintf("%d-%d-%d", m.line, m.step, m.fence)
	at, found := slices.BinarySearchFunc(s.runs, m, (*manifest).compare)
	if found {
		if !slices.Equal(s.runs[at].parts, m.parts) {
			return errPublished
		}
		return nil
	}
	s.runs = slices.Insert(s.runs, at, m)
	s.c.checkManifest(m)
	return nil
}

// newest returns the checkpoint that a new line starts from.
func (s *store) newest() (roster.Checkpoint, error) {
	if s.bad > s.c.now {
		return roster.Checkpoint{}, errStore
	}
	if len(s.runs) == 0 {
		return roster.Checkpoint{}, nil
	}
	m := s.runs[len(s.runs)-1]
	return roster.Checkpoint{Manifest: m.name, Step: m.step, Line: m.line}, nil
}

// writeChunk saves one chunk.
func (s *store) writeChunk(id kintsugi.ChunkID, x savedChunk) error {
	if err := s.writeError(); err != nil {
		return err
	}
	s.saved[id] = append(s.saved[id], x)
	return nil
}

// readRunning returns the newest values of a range of chunks, and their versions. They were saved
// on lines that a view keeps, or the first of these lines began with them.
func (s *store) readRunning(v *kintsugi.View, chunks kintsugi.ChunkRange) (values []uint64, saved []kintsugi.Step, err error) {
	values, step, err := s.read(v, chunks)
	if err != nil {
		return nil, nil, err
	}
	if s.bad > s.c.now {
		return nil, nil, errStore
	}
	saved = slices.Repeat([]kintsugi.Step{step}, len(values))
	for i := range values {
		if x := s.newestOf(v, chunks.Lo+kintsugi.ChunkID(i)); x != nil && x.step >= step {
			values[i], saved[i] = x.value, x.step
		}
	}
	return values, saved, nil
}

// newestOf returns the newest saved value of a chunk on the lines that a view keeps, or nil.
func (s *store) newestOf(v *kintsugi.View, id kintsugi.ChunkID) (newest *savedChunk) {
	for _, x := range s.saved[id] {
		if v.Keeps <= x.line && x.line < v.Line && (newest == nil || cmp.Or(cmp.Compare(x.line, newest.line), cmp.Compare(x.step, newest.step)) >= 0) {
			newest = &x
		}
	}
	return newest
}

func (s *store) run(name string) *manifest {
	for _, m := range s.runs {
		if m.name == name {
			return m
		}
	}
	return nil
}

// read returns the values of a range of chunks that a view starts from, and their step.
func (s *store) read(v *kintsugi.View, chunks kintsugi.ChunkRange) ([]uint64, kintsugi.Step, error) {
	if v.Restore == "" {
		return slices.Clone(s.c.oracle.initial[chunks.Lo:chunks.Hi]), 0, nil
	}
	if s.bad > s.c.now {
		return nil, 0, errStore
	}
	m := s.run(v.Restore)
	if m == nil {
		return nil, 0, fmt.Errorf("checkpoint %s is gone", v.Restore)
	}
	values := make([]uint64, chunks.Hi-chunks.Lo)
	for _, name := range m.parts {
		x := s.parts[name]
		for id := max(x.chunks.Lo, chunks.Lo); id < min(x.chunks.Hi, chunks.Hi); id++ {
			values[id-chunks.Lo] = x.values[id-x.chunks.Lo]
		}
	}
	return values, m.step, nil
}
