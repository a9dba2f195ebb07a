package role

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// How a process that was given no place takes one: on machines that come and go, as those of a group
// that a cloud keeps at a size, nobody numbers them. See decision 40.

// anyIndex is the --index of such a process.
const anyIndex = "auto"

// indexFlag is --index.
type indexFlag Process

func (f *indexFlag) String() string {
	if f.Any {
		return anyIndex
	}
	return strconv.Itoa(f.Index)
}

func (f *indexFlag) Set(text string) error {
	f.Index, f.Any = 0, text == anyIndex
	if f.Any {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return errors.New("use a number from 0, or " + anyIndex)
	}
	f.Index = int(n)
	return nil
}

func (f *indexFlag) Type() string { return "place" }

// whichPlace returns the place for which the certificate of this process must be.
func (p *Process) whichPlace() int {
	if p.Any {
		return mtls.Every
	}
	return p.Index
}

// errLost ends a process that takes any place and has lost its own to another one, as it may if etcd
// did not hear of it for the time of a lease. It is to be started again, and then waits for a place.
var errLost = errors.New("another process has taken the place of this one, which etcd did not hear of: started again, this one takes a place that is empty")

// returnGrace is how long spares leave a place to its process, which may be back in it: if etcd was
// away for the time of a lease, all of a run are, within a second after etcd (its clients try each
// half of one). Spares that were faster would take all servers their places, and with them what they
// hold.
const returnGrace = 2 * time.Second

// take fills the place of --index. With auto it fills any of the given number of places, and waits
// for one if it must: terms are those on which it met the run, which may have begun anew meanwhile. It
// returns neither a place nor an error if the run ends first.
func (p *Process) take(ctx context.Context, client *etcd.Client, kind etcd.Kind, places int, terms kintsugi.Terms, value func(index uint32) any) (*etcd.Registration, error) {
	if !p.Any {
		return client.Register(ctx, kind, uint32(p.Index), value(uint32(p.Index)), Lease)
	}
	ctx, end := context.WithCancel(ctx) // it lasts as long as the place
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var settled atomic.Bool // either the run has ended first, or there is a place
	go func() {
		if (kind == etcd.Worker || p.EndWithRun) && p.ends(waiting, client) && settled.CompareAndSwap(false, true) {
			p.over.Store(true)
			p.log.Info("the run is over: this process has had no place in it")
			end()
		}
	}()
	host, _ := os.Hostname()
	place, err := client.RegisterAny(ctx, kind, etcd.Vacancy{Places: uint32(places), Before: p.rank.before(), Grace: returnGrace, Value: value, Host: host, Full: func() {
		p.log.Info(fmt.Sprintf("all places are filled: this %s waits for one of them to become empty", kind), "places", places)
	}}, Lease)
	if !settled.CompareAndSwap(false, true) {
		if place != nil {
			p.leave(place)
		}
		return nil, nil
	}
	if err == nil {
		if err = agree(ctx, client, "this "+string(kind), terms); err != nil {
			p.leave(place)
		}
	}
	if err != nil {
		end()
		return nil, err
	}
	p.Index = int(place.Index())
	if err := p.rank.keep(place.Tenure()); err != nil {
		p.log.Warn("keep the place of this process for its next life, which will take any", "err", err)
	}
	return place, nil
}

// localRank is the number of a process among those of its role and run on this host that take any
// place: the lowest that no other has, which the kernel's lock on a file says. GPUs are given out by
// it. The file holds the place that its last process had, as whoever has the lock now is that one's
// next life.
type localRank struct {
	number int
	file   *os.File
}

// maxRank bounds the search.
const maxRank = 1 << 10

// takeRank takes a rank for this process. A host that can keep none is no obstacle.
func (p *Process) takeRank(what string) error {
	folder := p.rankFolder()
	r, err := openRank(folder, what)
	if err != nil {
		p.log.Warn("no file that other processes of this host see: this one is taken for the only "+what+" here, and its next life for another machine", "folder", folder, "err", err)
		return nil
	}
	p.rank, p.Place = r, r.number
	return nil
}

// rankFolder returns the folder of the files of a run, which is known by its name and etcd, on this
// host: several hosts may have one folder for temporary files, and no locks in it.
func (p *Process) rankFolder() string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = os.TempDir()
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %x", p.Run, slices.Sorted(slices.Values(p.Etcd)), shm.Boot())
	return filepath.Join(base, fmt.Sprintf("kintsugi-%d", os.Getuid()), fmt.Sprintf("%016x", h.Sum64()))
}

func openRank(folder, what string) (*localRank, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	for n := range maxRank {
		f, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("%s-%d", what, n)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &localRank{number: n, file: f}, nil
		}
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
	return nil, fmt.Errorf("%d files are locked", maxRank)
}

// before returns the place of the last process that had this rank, or none.
func (r *localRank) before() (t etcd.Tenure) {
	if r == nil {
		return t
	}
	b, err := io.ReadAll(io.NewSectionReader(r.file, 0, 1<<10))
	if err != nil || json.Unmarshal(b, &t) != nil { // of a process that died while it wrote
		return etcd.Tenure{}
	}
	return t
}

// keep writes the place of this process.
func (r *localRank) keep(t etcd.Tenure) error {
	if r == nil {
		return nil
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	_, err = r.file.WriteAt(b, 0)
	return err
}
