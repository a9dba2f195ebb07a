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

// The events of a long run are cut: what events.jsonl had so far becomes events-000001.jsonl, which
// is packed into events-000001.jsonl.zst and removed. Wherever a process dies meanwhile, each event
// is found once:
//
//   - the file is linked to its new name, and only then does an empty one take its place, so
//     events.jsonl is always there; a name of the very same file is passed over;
//   - what is packed gets its name when it is whole; where both are there, they hold the same.

// segmentBytes is how long events.jsonl grows before it is cut: some 300,000 steps of 4 workers.
const segmentBytes = 128 << 20

const (
	segmentForm  = "events-%06d.jsonl"
	packedSuffix = ".zst"
	nextSuffix   = ".next" // of the file that takes the place of events.jsonl
)

// segment is a part of the events that is cut off.
type segment struct {
	number       int
	plain, whole bool // it is there as it was written, and packed
}

// segmentsOf lists those in dir but for one that is current, which may be nil, by number.
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

// openEvents opens events.jsonl, and lists what was cut off before it. A run that goes on may cut it at any time.
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
		if err := f.Close(); err != nil { // it was cut meanwhile, and may be in the list or not
			return nil, nil, err
		}
	}
}

// readSegment reads the events of a segment. One that is damaged, or gone, leaves a hole.
func (run *Run) readSegment(s segment) error {
	for _, packed := range []bool{true, false, true} { // it may be packed meanwhile
		f, err := s.open(run.Dir, packed)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = errors.Join(run.readEvents(f), f.Close())
		var broken *fs.PathError
		if errors.Is(err, errFormat) || errors.As(err, &broken) { // the disk, and not what is on it
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

// unpacking reads a packed file.
type unpacking struct {
	*zstd.Decoder
	f *os.File
}

func (u *unpacking) Close() error {
	u.Decoder.Close()
	return u.f.Close()
}

// cut begins a new events.jsonl. Where that cannot be, the old one grows on. The caller holds the
// lock, and has flushed.
func (r *Recorder) cut() {
	r.size = 0 // a cut that fails is tried again as much later
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

// pack packs what is not, beside what goes on.
func (r *Recorder) pack() {
	dir := r.run.Dir
	current, err := r.file.Stat()
	if err != nil {
		return
	}
	r.packing.Go(func() {
		r.packs.Lock()
		defer r.packs.Unlock()
		list, err := segmentsOf(dir, current) // if that is cut by now, whoever did it packs it
		if err != nil {
			return
		}
		for _, s := range list {
			if s.plain && pack(s.path(dir)) != nil {
				return // it can be read as it is, and is tried again after the next cut
			}
		}
	})
}

// pack packs one segment and removes it.
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

// tidy clears away what a cut that was not ended has left, and returns the number of the newest
// segment. The current file is locked.
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
		if strings.HasPrefix(e.Name(), "events-") && strings.Contains(e.Name(), packedSuffix+".tmp") { // half packed: nobody else packs here
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return 0, err
			}
		}
	}
	for _, s := range all {
		if info, err := os.Stat(s.path(dir)); err == nil && os.SameFile(info, own) { // it was to be cut
			if err := os.Remove(s.path(dir)); err != nil {
				return 0, err
			}
		}
		newest = s.number
	}
	return newest, nil
}
