package ckpt

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// partly is the manifest of a shard of the chunks 4 to 8, of which the newest save has chunk 5, and
// the one before all.
func partly(t *testing.T) *ShardManifest {
	t.Helper()
	layout := smallLayout(t)
	w := mustTrainer(t, vfs.NewMem(), layout, kintsugi.RuleSGD, 2, 1, 1).writers[1]
	if w.cfg.Range != (kintsugi.ChunkRange{Lo: 4, Hi: 9}) {
		t.Fatalf("the shard has chunks %v", w.cfg.Range)
	}
	f := model(t, layout, kintsugi.RuleSGD, 1)
	for _, s := range []Snapshot{{Step: 10, Load: f.Load}, {Step: 11, Chunks: []kintsugi.ChunkID{5}, Load: f.Load}} {
		if _, err := w.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return w.newest
}

// Its checksum is right each time: only what it says is wrong.
func TestAShardManifestThatContradictsItselfIsDamaged(t *testing.T) {
	x, _, _ := oneIncrement(t, kintsugi.RuleSGD, Increments{Encoding: kernels.Int8})
	increments := func() *ShardManifest {
		m := *x.w.newest
		m.Chunks = append([]Entry(nil), m.Chunks...)
		return &m
	}
	for _, c := range []struct {
		want   string
		m      *ShardManifest
		change func(m *ShardManifest)
	}{
		{"rule 99", partly(t), func(m *ShardManifest) { m.Rule = 99 }},
		{"version 0 with such chunks", partly(t), func(m *ShardManifest) { m.Version = 0 }},
		{"version 2 with such chunks", partly(t), func(m *ShardManifest) { m.Version = 2 }},
		{"version 1 with such chunks", increments(), func(m *ShardManifest) { m.Version = 1 }},
		{"[10, 9) are no range", partly(t), func(m *ShardManifest) { m.Lo = 10 }},
		{"is no name of a segment", partly(t), func(m *ShardManifest) { m.Segments[0].File = "x" }},
		{"belongs to line 2 shard 0", partly(t), func(m *ShardManifest) {
			m.Line = 2
			m.Segments[0].File = "segment/" + fileName{Line: 2, Step: 10, Fence: 1}.shard()
		}},
		{"belongs to line 1 shard 1", partly(t), func(m *ShardManifest) { m.Line = 2 }},
		{"is out of order", partly(t), func(m *ShardManifest) { m.Segments[0].File = m.Segments[1].File }},
		{"is out of order", partly(t), func(m *ShardManifest) {
			m.Segments[0], m.Segments[1] = m.Segments[1], m.Segments[0]
			for i := range m.Chunks {
				m.Chunks[i].Segment = 1 - m.Chunks[i].Segment
			}
		}},
		{"of 65 bytes", partly(t), func(m *ShardManifest) { m.Chunks, m.Segments = m.Chunks[:0], []Segment{{m.Segments[1].File, 65}} }},
		{"of 32 bytes", partly(t), func(m *ShardManifest) { m.Chunks, m.Segments = m.Chunks[:0], []Segment{{m.Segments[1].File, 32}} }},
		{"holds none of the chunks", partly(t), func(m *ShardManifest) { m.Chunks = m.Chunks[1:2] }},
		{"not the one of this save", partly(t), func(m *ShardManifest) { m.Attempt++ }},
		{"not the one of this save", partly(t), func(m *ShardManifest) { m.Chunks, m.Segments = nil, nil }},
		{"chunk 4 is out of order, or not in [5, 9)", partly(t), func(m *ShardManifest) { m.Lo = 5 }},
		{"chunk 8 is out of order, or not in [4, 8)", partly(t), func(m *ShardManifest) { m.Hi = 8 }},
		{"chunk 4 is out of order", partly(t), func(m *ShardManifest) { m.Chunks[1].Chunk = 4 }},
		{"chunk 5 of step 12 in a manifest of step 11", partly(t), func(m *ShardManifest) { m.Chunks[1].Step = 12 }},
		{"chunk 5 in segment 2 of 2", partly(t), func(m *ShardManifest) { m.Chunks[1].Segment = 2 }},
		{"chunk 5 in segment -1 of 2", partly(t), func(m *ShardManifest) { m.Chunks[1].Segment = -1 }},
		{"chunk 5 at offset 0 with", partly(t), func(m *ShardManifest) { m.Chunks[1].Offset = 0 }},
		{"chunk 5 at offset -64 with", partly(t), func(m *ShardManifest) { m.Chunks[1].Offset = -align }},
		{"chunk 4 at offset 65 with", partly(t), func(m *ShardManifest) { m.Chunks[0].Offset = 65 }},
		{"chunk 5 at offset 64 with 64 bytes", partly(t), func(m *ShardManifest) { m.Chunks[1].Bytes = headerBytes }},
		{"chunk 4 at offset 64 with 65 bytes", partly(t), func(m *ShardManifest) { m.Chunks[0].Bytes = 65 }},
		{"bytes of a segment of", partly(t), func(m *ShardManifest) { m.Chunks[1].Bytes += align }},
		{"bytes of a segment of", partly(t), func(m *ShardManifest) { m.Chunks[1].Offset = math.MaxInt64 / align * align }},
		{"bytes of a segment of", partly(t), func(m *ShardManifest) {
			m.Segments[1].Bytes, m.Chunks[1].Bytes = 1<<40, (headerBytes+maxPayload)/align*align+align
		}},
		{"has nothing before it", partly(t), func(m *ShardManifest) { m.Chunks[1].Increment, m.Version = true, 2 }},
		{"has nothing before it", increments(), func(m *ShardManifest) { m.Chunks[0].Chunk = 1 }},
		{"has nothing before it", increments(), func(m *ShardManifest) { m.Chunks[0].Step = m.Chunks[1].Step }},
	} {
		before, err := c.m.encode()
		if err == nil {
			_, err = decodeShard(c.m.File(), before)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.change(c.m)
		content, err := c.m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeShard(c.m.File(), content); !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", c.want, err)
		}
	}
}

// What is stored and not live are the headers of two segments, and the older value of chunk 5.
func TestBytesOfARunningCheckpoint(t *testing.T) {
	m := partly(t)
	stored, live := m.Bytes()
	chunks := int64(len(m.Chunks))
	if record := m.Chunks[1].Bytes; live < chunks*(headerBytes+align) || stored != live+2*headerBytes+record {
		t.Errorf("%d bytes are stored and %d live, with a record of %d", stored, live, record)
	}
}
