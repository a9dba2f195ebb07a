package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// A forgetful run is one whose processes are started one by one, with an etcd that loses data.
type forgetful struct {
	t                             *testing.T
	file, store, record, data     string
	endpoint, peer                string
	etcd, coordinator             *childProcess
	servers, workers, whoOnlySees []*childProcess
}

func newForgetful(t *testing.T, steps int) *forgetful {
	dir := t.TempDir()
	f := &forgetful{t: t, file: filepath.Join(dir, "run.yaml"), store: filepath.Join(dir, "store"), record: filepath.Join(dir, "record"), data: filepath.Join(dir, "etcd")}
	settings := fmt.Sprintf("model: qp:dimension=4000,condition=30,noise=0.1\nblas: gonum\nworkers: 2\nservers: 2\nsteps: %d\ncheckpoint-every: 20\nrecovery: checkpoint\n", steps)
	if err := os.WriteFile(f.file, []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	f.endpoint, f.peer = freeAddress(t), freeAddress(t)
	f.startEtcd()
	f.coordinator = f.role("coordinator", "--store", f.store, "--end-with-run")
	f.everybody()
	return f
}

func (f *forgetful) startEtcd() {
	f.etcd = start(f.t, "etcd", "--listen", f.endpoint, "--peer", "a="+f.peer, "--dir", f.data)
	waitListening(f.t, f.endpoint)
}

func (f *forgetful) killEtcd() {
	f.etcd.signal(syscall.SIGKILL)
	<-f.etcd.ended
}

func (f *forgetful) role(name string, more ...string) *childProcess {
	return start(f.t, append([]string{name, "--config", f.file, "--etcd", f.endpoint}, more...)...)
}

func (f *forgetful) server(i int) *childProcess {
	return f.role("server", "--index", fmt.Sprint(i), "--store", f.store, "--end-with-run")
}

// everybody starts all but the coordinator.
func (f *forgetful) everybody() {
	f.servers, f.workers, f.whoOnlySees = nil, nil, []*childProcess{f.role("monitor", "--out", f.record)}
	for i := range 2 {
		f.servers = append(f.servers, f.server(i))
		f.workers = append(f.workers, f.role("worker", "--index", fmt.Sprint(i), "--gradient-time", "20ms"))
	}
}

func (f *forgetful) all() []*childProcess { return slices.Concat(f.servers, f.workers, f.whoOnlySees) }

// saved waits until there is a checkpoint of a step.
func (f *forgetful) saved(step kintsugi.Step) {
	eventually(f.t, fmt.Sprintf("there is a checkpoint of step %d", step), func() bool {
		m, _, err := ckpt.Newest(vfs.OS{}, f.store)
		return err == nil && m.Step >= step
	})
}

// goesOn checks that all processes but the coordinator end, and that the run ends with the bits of
// an undisturbed one when they are started again.
func (f *forgetful) goesOn(steps int) *record.Run {
	t := f.t
	for _, p := range f.all() {
		if r := p.wait(); r.status != exitFailed || !strings.Contains(r.stderr, "etcd has lost what it knew of this run") {
			t.Errorf("%v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
		}
	}
	f.everybody()
	for _, p := range append(f.all(), f.coordinator) {
		if r := p.wait(); r.status != exitDone {
			t.Errorf("started again, %v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
		}
	}
	undisturbed := newDir(t)
	must(t, quadratic(steps, "--out", undisturbed)...)
	sameBits(t, f.store, undisturbed)
	return readRun(t, f.record)
}

// If etcd comes back without its data, nobody would hear of the others again. So the processes say
// so and end, with a status after which they are started again, and the run goes on from its
// checkpoint to the bits of an undisturbed one. Its monitor continues the record.
func TestARunWhoseEtcdLosesItsDataGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	f := newForgetful(t, 120)
	f.saved(20)
	f.killEtcd()
	if err := os.RemoveAll(f.data); err != nil {
		t.Fatal(err)
	}
	f.startEtcd()
	r := f.goesOn(120)
	if n := len(r.Views); n != 2 || r.Views[1].Line != 2 || r.Views[1].RestoredStep < 20 || r.Summary.Steps != 120 {
		t.Errorf("the record has %d steps and the views %+v", r.Summary.Steps, r.Views)
	}
}

// It is the same if etcd comes back with data of the past, which know the processes but not the
// views since. The next line is none of those that the past does not know.
func TestARunWhoseEtcdIsRestoredFromABackupGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	const steps = 400
	f := newForgetful(t, steps)
	f.saved(20)
	f.killEtcd()
	backup := f.data + ".backup"
	if err := os.CopyFS(backup, os.DirFS(f.data)); err != nil {
		t.Fatal(err)
	}
	f.startEtcd()
	f.servers[0].signal(syscall.SIGKILL)
	<-f.servers[0].ended
	f.servers[0] = f.server(0)
	f.saved(80) // on line 2
	f.killEtcd()
	if err := errors.Join(os.RemoveAll(f.data), os.Rename(backup, f.data)); err != nil {
		t.Fatal(err)
	}
	f.startEtcd()
	r := f.goesOn(steps)
	if v := r.Views[len(r.Views)-1]; v.Number > 3 || v.Line < 3 || v.RestoredStep < 80 || r.Summary.Steps != steps {
		t.Errorf("the record has %d steps and the views %+v", r.Summary.Steps, r.Views)
	}
}
