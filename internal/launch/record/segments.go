package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// The events of a long run are cut into segments. The content of events.jsonl so far becomes
// events-000001.jsonl, which is compressed to events-000001.jsonl.zst and removed. Whenever a
// process dies during this, each event is found exactly once:
//
//   - The file is linked to its new name, and only then replaced by an empty one, so events.jsonl
//     always exists. A segment that is the same file as events.jsonl is ignored.
//   - A compressed file gets its name when it is complete. If both forms exist, they have the same
//     content.

// segmentBytes is the size at which events.jsonl is cut: about 300,000 steps of 4 workers.
const segmentBytes = 128 << 20

const (
	segmentForm  = "events-%06d.jsonl"
	packedSuffix = ".zst"
	nextSuffix   = ".next" // of the file that replaces events.jsonl
)

// segment is an earlier part of the events.
type segment struct {
	number       int
	plain, whole bool // exists uncompressed; exists compressed
}

// segmentsOf lists the segments in dir by number, except one that is the file current, which may be
// nil.
func segmentsOf(dir string, current fs.FileInfo) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, e := range entries {
		var s segment
		name, packed := strings.CutSuffix(e.Name(), packedSuffix)
		if n, err := fmt.Sscanf(name, segmentForm, &s.number); n != 1 || err != nil || name != fmt.Sprintf(segmentForm, s.number) {
			continue
		}
		if info, err := e.Info(); !packed && err == nil && current != nil && os.SameFile(info, current) {
			continue
		}
		at, found := slices.BinarySearchFunc(list, s, func(a, b segment) int { return a.number - b.number })
		if !found {
			list = slices.Insert(list, at, s)
		}
		list[at].whole, list[at].plain = list[at].whole || packed, list[at].plain || !packed
	}
	return list, nil
}

func (s segment) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf(segmentForm, s.number))
}

// openEvents opens events.jsonl and lists the earlier segments. A running run may cut the file at
// any time.
func openEvents(dir string) (*os.File, []segment, error) {
	path := filepath.Join(dir, eventsFile)
	for {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		own, err := f.Stat()
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		list, err := segmentsOf(dir, own)
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(path); err != nil || os.SameFile(own, now) {
			return f, list, nil
		}
		if err := f.Close(); err != nil { // it was cut meanwhile, so the list may or may not have it
			return nil, nil, err
		}
	}
}

// readSegment reads the events of a segment. If the segment is damaged or gone, its events are
// missing.
func (run *Run) readSegment(s segment) error {
	for _, packed := range []bool{true, false, true} { // it may be compressed meanwhile
		f, err := s.open(run.Dir, packed)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = errors.Join(run.readEvents(f), f.Close())
		var broken *fs.PathError
		if errors.Is(err, errFormat) || errors.As(err, &broken) { // an error of the disk, not of the content
			return err
		}
		if err != nil {
			run.Skipped++
		}
		return nil
	}
	run.Skipped++
	return nil
}

func (s segment) open(dir string, packed bool) (io.ReadCloser, error) {
	if !packed {
		return os.Open(s.path(dir))
	}
	f, err := os.Open(s.path(dir) + packedSuffix)
	if err != nil {
		return nil, err
	}
	d, err := zstd.NewReader(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &unpacking{d, f}, nil
}

// unpacking reads a compressed file.
type unpacking struct {
	*zstd.Decoder
	f *os.File
}

func (u *unpacking) Close() error {
	u.Decoder.Close()
	return u.f.Close()
}

// cut begins a new events.jsonl. If that fails, the old one goes on growing. The caller holds the
// lock, and has flushed.
func (r *Recorder) cut() {
	r.size = 0 // if the cut fails, try again after the same amount
	path := filepath.Join(r.run.Dir, eventsFile)
	fresh, err := os.OpenFile(path+nextSuffix, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		return
	}
	s := segment{number: r.cuts + 1}
	err = lock(fresh, r.run.Dir)
	if err == nil {
		err = os.Link(path, s.path(r.run.Dir))
	}
	if err == nil {
		if err = os.Rename(path+nextSuffix, path); err != nil {
			err = errors.Join(err, os.Remove(s.path(r.run.Dir)))
		}
	}
	if err != nil { // some file systems have no links
		_, _ = fresh.Close(), os.Remove(path+nextSuffix)
		return
	}
	_ = vfs.OS{}.SyncDir(r.run.Dir)
	r.keep(r.file.Close())
	r.file, r.cuts = fresh, s.number
	r.w.Reset(fresh)
	r.pack()
}

// pack compresses all uncompressed segments, while recording goes on.
func (r *Recorder) pack() {
	dir := r.run.Dir
	current, err := r.file.Stat()
	if err != nil {
		return
	}
	r.packing.Go(func() {
		r.packs.Lock()
		defer r.packs.Unlock()
		list, err := segmentsOf(dir, current) // if that has been cut by now, the next call compresses it
		if err != nil {
			return
		}
		for _, s := range list {
			if s.plain && pack(s.path(dir)) != nil {
				return // it can be read as it is, and the next cut tries again
			}
		}
	})
}

// pack compresses one segment and removes the original.
func pack(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	err = WriteFile(path+packedSuffix, func(w io.Writer) error {
		e, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		_, err = io.Copy(e, in)
		return errors.Join(err, e.Close())
	})
	if err = errors.Join(err, in.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// tidy removes what an interrupted cut has left, and returns the number of the newest segment. The
// caller has locked the current file.
func tidy(dir string, current *os.File) (newest int, err error) {
	if err := os.Remove(filepath.Join(dir, eventsFile+nextSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	own, err := current.Stat()
	if err != nil {
		return 0, err
	}
	all, err := segmentsOf(dir, nil)
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "events-") && strings.Contains(e.Name(), packedSuffix+".tmp") { // half compressed, and no other process compresses here
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return 0, err
			}
		}
	}
	for _, s := range all {
		if info, err := os.Stat(s.path(dir)); err == nil && os.SameFile(info, own) { // the link of an interrupted cut
			if err := os.Remove(s.path(dir)); err != nil {
				return 0, err
			}
		}
		newest = s.number
	}
	return newest, nil
}
