package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// seedFiles adds all files of a folder of a small checkpoint.
func seedFiles(f *testing.F, folder string) {
	fsys := twoSaves(f)
	for _, name := range fsys.Walk(inDir(folder)) {
		b, err := readAll(fsys, ".", name, maxManifest)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// resealed replaces the checksum line, since a fuzzer would never get past it.
func resealed(b []byte) []byte {
	if len(b) < sealBytes {
		return b
	}
	j := jsonLines{}
	j.b.Write(bytes.TrimSuffix(b[:len(b)-sealBytes], []byte("\n}\n")))
	again, _ := j.seal()
	return again
}

func FuzzClaim(f *testing.F) {
	b, err := sampleClaim.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(b)} {
			probe := new(Claim)
			_ = decodeManifest("probe", claimFormat, plainVersion, b, probe) // the name that a file with this content must have
			c, err := decodeClaim(probe.File(), b)
			if err != nil {
				requireKnown(t, err)
				continue
			}
			again, err := c.encode()
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("accepted, but written differently: %v\n%s\n%s", err, b, again)
			}
		}
	})
}

func FuzzShardManifest(f *testing.F) {
	seedFiles(f, shardDir)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(b)} {
			probe := new(ShardManifest)
			_ = decodeManifest("probe", shardFormat, incrementVersion, b, probe) // the name that a file with this content must have
			m, err := decodeShard(probe.File(), b)
			if err != nil {
				requireKnown(t, err)
				continue
			}
			again, err := m.encode()
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("accepted, but written differently: %v\n%s\n%s", err, b, again)
			}
			m.Complete()
			m.locate(kintsugi.ChunkRange{Lo: m.Lo, Hi: m.Hi})
		}
	})
}

func FuzzRunManifest(f *testing.F) {
	seedFiles(f, runDir)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(b)} {
			probe := new(RunManifest)
			_ = decodeManifest("probe", runFormat, plainVersion, b, probe)
			m, err := decodeRun(probe.Name(), b)
			if err != nil {
				requireKnown(t, err)
				continue
			}
			again, err := m.encode()
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("accepted, but written differently: %v\n%s\n%s", err, b, again)
			}
		}
	})
}

func requireKnown(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, kintsugi.ErrCorrupt) && !errors.Is(err, kintsugi.ErrOtherModel) {
		t.Fatalf("an error that says neither corrupt nor newer: %v", err)
	}
}

// FuzzSegment verifies a whole checkpoint with arbitrary bytes in the place of a segment.
func FuzzSegment(f *testing.F) {
	seedFiles(f, segmentDir)
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := twoSaves(t)
		if err := fsys.Edit(fsys.Walk(inDir(segmentDir))[0], func([]byte) []byte { return b }); err != nil {
			t.Fatal(err)
		}
		mustVerifyOrNewer(t, fsys)
	})
}

func mustVerifyOrNewer(t *testing.T, fsys vfs.FS) {
	t.Helper()
	if _, err := Verify(t.Context(), fsys, testDir, nil); err != nil && !errors.Is(err, kintsugi.ErrOtherModel) {
		t.Fatal(err)
	}
}

func FuzzRecordHeader(f *testing.F) {
	h := recordHeader{Chunk: 3, Values: 5, Line: 1, Step: 2, Optimizer: 7, Arrays: 2, Rule: kintsugi.RuleAdam, Offset: 64}
	b, _ := appendRecord(nil, h, Arrays{Params: make([]float32, 5), State: [2][]float32{make([]float32, 5), make([]float32, 5)}})
	f.Add(b)
	f.Add(segmentHeader{Name: fileName{Line: 1, Step: 2}, Range: kintsugi.ChunkRange{Hi: 3}}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		sealed := bytes.Clone(b)
		if len(sealed) >= headerBytes {
			binary.LittleEndian.PutUint32(sealed[60:], checksum(sealed[:60]))
		}
		for _, b := range [][]byte{b, sealed} {
			if h, err := parseRecordHeader(b); err == nil {
				if h.payload() > maxPayload || h.payload() == 0 {
					t.Fatalf("payload of %d bytes", h.payload())
				}
				var again [headerBytes]byte
				if h.put(again[:]); !bytes.Equal(again[:], b[:headerBytes]) {
					t.Fatalf("accepted, but written differently:\n%x\n%x", b[:headerBytes], again)
				}
				if len(b) >= h.bytes() {
					_ = checkRecord(b[:h.bytes()], h)
				}
			}
			if h, err := parseSegmentHeader(b); err == nil && !bytes.Equal(h.append(nil), b[:headerBytes]) {
				t.Fatalf("accepted, but written differently: %x", b[:headerBytes])
			}
		}
	})
}

func FuzzName(f *testing.F) {
	n := fileName{Line: 1, Step: 2, Fence: 3, Shard: 4, Attempt: 5}
	f.Add(n.run())
	f.Add(n.shard())
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := parseRunName(s); ok && n.run() != s {
			t.Fatalf("%q is read as %q", s, n.run())
		}
		if n, ok := parseShardName(s); ok && n.shard() != s {
			t.Fatalf("%q is read as %q", s, n.shard())
		}
	})
}

// Whatever a file contains instead of its own bytes: a repair ends, no damage is left, and values
// that cannot be verified are not returned.
func FuzzRepair(f *testing.F) {
	base := vfs.NewMem()
	damagedRun(f, base)
	names := base.Walk(testDir)
	for i, name := range names {
		b, err := readAll(base, "", name, 1<<30)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, b)
		f.Add(i, b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, i int, content []byte) {
		fsys := vfs.NewMem()
		layout, models := damagedRun(t, fsys)
		if err := fsys.Edit(names[uint(i)%uint(len(names))], func([]byte) []byte { return content }); err != nil {
			t.Fatal(err)
		}
		if _, err := Repair(context.Background(), fsys, testDir, RepairConfig{Now: repairTime}); errors.Is(err, kintsugi.ErrOtherModel) {
			return // taken for a newer format, since the checksum was right
		} else if err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, fsys); len(r.Damage) > 0 {
			t.Fatal(r.Damage)
		}
		stateOf(t, fsys, layout, models)
	})
}
