package ckpt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// distant is a file system that is read in several parts of a few bytes at once.
type distant struct {
	vfs.FS
	reads, bytes int
}

func (d distant) AtOnce() (reads, bytes int) { return d.reads, d.bytes }

// sick is a file system in which the bytes [lo, hi) of a file cannot be read.
type sick struct {
	vfs.FS
	name   string
	lo, hi int64
}

func (s sick) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	if err == nil && name == s.name {
		f = sickFile{File: f, sick: s}
	}
	return f, err
}

type sickFile struct {
	vfs.File
	sick
}

func (f sickFile) ReadAt(p []byte, offset int64) (int, error) {
	if offset < f.hi && f.lo < offset+int64(len(p)) {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, offset)
}

// ascendingOver returns an ascending over parts of random lengths, some of which cannot be read.
func ascendingOver(rng *rand.Rand, content []byte) *ascending {
	var parts []part
	for at := 0; at < len(content); {
		p := part{offset: int64(at), bytes: min(1+rng.IntN(40), len(content)-at)}
		if rng.IntN(4) == 0 {
			p.err = syscall.EIO
		} else {
			p.buffer = bytes.Clone(content[at : at+p.bytes])
		}
		parts, at = append(parts, p), at+p.bytes
	}
	if rng.IntN(3) == 0 {
		parts = parts[:rng.IntN(len(parts)+1)] // it is longer than was thought
	}
	return &ascending{f: bytes.NewReader(content), next: func() (*part, bool) {
		if len(parts) == 0 {
			return nil, false
		}
		p := parts[0]
		parts = parts[1:]
		return &p, true
	}}
}

func TestAscendingReadsAreThoseOfTheFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		content := make([]byte, rng.IntN(300))
		for i := range content {
			content[i] = byte(rng.Uint32())
		}
		a := ascendingOver(rng, content)
		for at := 0; at <= len(content)+20; {
			got, want := make([]byte, rng.IntN(60)), make([]byte, 60)
			n, err := a.ReadAt(got, int64(at))
			want = want[:len(got)]
			m, wantErr := bytes.NewReader(content).ReadAt(want, int64(at))
			if len(got) == 0 {
				m, wantErr = 0, nil // nothing was wanted
			}
			if n != m || !errors.Is(err, wantErr) || !bytes.Equal(got, want) || err != nil && !errors.Is(err, io.EOF) {
				t.Fatalf("%d bytes at %d of %d: %d, %v; want %d, %v", len(got), at, len(content), n, err, m, wantErr)
			}
			at += len(got) + rng.IntN(2)*rng.IntN(50)
		}
	}
}

// A directory of which several parts are on their way at once is verified as one that is read record
// by record, whatever cannot be read in it.
func TestVerifyFindsTheSameFromAfar(t *testing.T) {
	disk := twoSaves(t)
	rng := rand.New(rand.NewPCG(5, 6))
	damages := 0
	for _, name := range disk.Walk(testDir) {
		info, err := disk.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		for lo := int64(0); lo < info.Size; lo += 1 + rng.Int64N(16) {
			fsys := sick{FS: disk, name: name, lo: lo, hi: lo + 1 + rng.Int64N(40)}
			want, err := Verify(context.Background(), fsys, testDir, nil)
			if err != nil {
				t.Fatal(err)
			}
			damages += len(want.Damage)
			sameFromAfar(t, fsys, want)
		}
	}
	if damages == 0 {
		t.Error("all could be read")
	}
}

// sameFromAfar checks that a report is found by reading several parts at once too.
func sameFromAfar(t testing.TB, fsys vfs.FS, want Report) {
	t.Helper()
	for _, far := range []distant{{fsys, 2, 50}, {fsys, 3, 1000}} {
		got, err := Verify(context.Background(), far, testDir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("in %d parts of %d bytes at once: %+v, want %+v", far.reads, far.bytes, got, want)
		}
	}
}

// A survey that has memory for one chunk finds what one finds that reads all at once.
func TestASurveyInBatchesFindsTheSame(t *testing.T) {
	fsys := vfs.NewMem()
	layout, _ := damagedRun(t, fsys)
	distance := func(a, b []float32) (float64, error) { // a number, whatever the values are
		return float64(math.Float32bits(a[0])) + math.Pi*float64(math.Float32bits(b[0])), nil
	}
	for _, name := range fsys.Walk(testDir) {
		info, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		for lo := int64(0); lo < info.Size; lo += 97 {
			s := survey{fs: sick{FS: fsys, name: name, lo: lo, hi: lo + 1}, dir: testDir, layout: layout, distance: distance}
			wantStates, wantSkipped, err := Survey(t.Context(), s.fs, testDir, layout, distance)
			if err != nil {
				t.Fatal(err)
			}
			states, skipped, err := s.survey(t.Context())
			if err != nil || !reflect.DeepEqual(states, wantStates) || !reflect.DeepEqual(skipped, wantSkipped) {
				t.Fatalf("%s without the byte at %d: %+v, %v, %v; want %+v, %v", name, lo, states, skipped, err, wantStates, wantSkipped)
			}
		}
	}
}
