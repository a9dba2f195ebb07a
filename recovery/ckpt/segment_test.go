package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// reseal edits the header at an offset of a file, and gives it a checksum that is right.
func reseal(t testing.TB, mem *vfs.Mem, name string, offset int64, edit func(header []byte)) {
	t.Helper()
	if err := mem.Edit(name, func(b []byte) []byte {
		h := b[offset : offset+headerBytes]
		edit(h)
		binary.LittleEndian.PutUint32(h[60:], checksum(h[:60]))
		return b
	}); err != nil {
		t.Fatal(err)
	}
}

// newestSegment returns the last segment of a damagedRun, and where its last record begins.
func newestSegment(t testing.TB, mem *vfs.Mem) (name string, last int64) {
	t.Helper()
	name = slices.Max(mem.Walk(inDir(segmentDir)))
	m, _, err := ReadShard(mem, testDir, path.Join(shardDir, path.Base(name)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.Chunks {
		if m.Segments[e.Segment].File == path.Join(segmentDir, path.Base(name)) {
			last = max(last, e.Offset)
		}
	}
	if last <= headerBytes {
		t.Fatalf("%s has no second record", name)
	}
	return name, last
}

// edits of headers. A checksum alone would not notice them: a disk that wrote a block in another
// place, or in another file.
var (
	anotherLine    = func(h []byte) { binary.LittleEndian.PutUint64(h[16:], 2) }
	anotherStep    = func(h []byte) { binary.LittleEndian.PutUint64(h[24:], 21) }
	anotherPlace   = func(h []byte) { binary.LittleEndian.PutUint64(h[48:], 64) }
	anotherAttempt = func(h []byte) { h[36]++ }
	anotherModel   = func(h []byte) { h[40]++ }
	laterVersion   = func(h []byte) { binary.LittleEndian.PutUint16(h[4:], FormatVersion+1) }
)

// A manifest is written again from its segment alone. It names no record that was written elsewhere,
// and none at all if the segment is another's.
func TestRecordsFromElsewhereAreNotSalvaged(t *testing.T) {
	t.Parallel()
	undisturbed := repairedUndisturbed(t, []string{shardDir})
	for what, c := range map[string]struct {
		edit    func([]byte)
		segment bool // its header, not that of its last record
	}{
		"the line of a record":   {edit: anotherLine},
		"the step of a record":   {edit: anotherStep},
		"the place of a record":  {edit: anotherPlace},
		"the name of a segment":  {edit: anotherAttempt, segment: true},
		"nothing":                {edit: func([]byte) {}},
		"nothing of the segment": {edit: func([]byte) {}, segment: true},
	} {
		mem := vfs.NewMem()
		layout, models := damagedRun(t, mem)
		name, last := newestSegment(t, mem)
		if c.segment {
			last = 0
		}
		reseal(t, mem, name, last, c.edit)
		breakFiles(t, mem, shardDir)
		checkRepaired(t, what, mem, layout, models)
		after := stateOf(t, mem, layout, models)
		if same := slices.Equal(after.running, undisturbed.running); same != strings.HasPrefix(what, "nothing") {
			t.Errorf("%s is wrong: chunks come back as of steps %d; where nothing is: %d", what, after.running, undisturbed.running)
		}
	}
}

// The segment of another model is damage of every checkpoint that needs it.
func TestASegmentOfAnotherModelIsDamage(t *testing.T) {
	mem := vfs.NewMem()
	damagedRun(t, mem)
	name, _ := newestSegment(t, mem)
	reseal(t, mem, name, 0, anotherModel)
	r := mustVerify(t, mem)
	if len(r.Damage) != 1 {
		t.Fatalf("verify finds %v", r.Damage)
	}
	if d, ok := errors.AsType[*Damage](r.Damage[0]); !ok || inDir(d.File) != name || d.Offset != 0 {
		t.Errorf("verify finds %v, want damage at the beginning of %s", r.Damage[0], name)
	}
}

// What a later version wrote is not damage: a program that does not know it leaves it where it is.
func TestRepairLeavesALaterVersionAlone(t *testing.T) {
	for _, orphan := range []bool{false, true} { // the manifest is damaged: only the segment is left to look at
		for _, record := range []bool{false, true} {
			mem := vfs.NewMem()
			damagedRun(t, mem)
			name, at := newestSegment(t, mem)
			if !record {
				at = 0
			}
			reseal(t, mem, name, at, laterVersion)
			if orphan {
				breakFiles(t, mem, shardDir)
			}
			before := readTree(t, mem)
			_, err := Repair(context.Background(), mem, testDir, RepairConfig{Now: repairTime})
			if !errors.Is(err, kintsugi.ErrOtherModel) || !strings.Contains(err.Error(), "use a newer kintsugi") {
				t.Errorf("orphan %t, record %t: error %v", orphan, record, err)
			}
			if after := readTree(t, mem); !maps.EqualFunc(before, after, slices.Equal) {
				t.Errorf("orphan %t, record %t: the repair changed files", orphan, record)
			}
		}
	}
}

// Only a manifest knows what an increment is added to. Without it, the increment is left out.
func TestIncrementsWithoutTheirManifestAreLeftOut(t *testing.T) {
	x, fsys := chains(t)
	all, _ := x.back(t, fsys)
	breakFiles(t, fsys, shardDir)
	if _, err := Repair(context.Background(), fsys, testDir, RepairConfig{Now: repairTime}); err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, fsys); len(r.Damage) > 0 {
		t.Fatal(r.Damage)
	}
	if left, _ := x.back(t, fsys); left[0] != all[0]-1 || left[1] != all[1]-1 {
		t.Errorf("chunks come back as of steps %d, want one step before %d", left[:2], all[:2])
	}
}
