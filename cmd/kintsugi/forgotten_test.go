package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// If etcd comes back without its data, nobody would hear of the others again. So the processes say
// so and end, with a status after which they are started again, and the run goes on from its
// checkpoint to the bits of an undisturbed one. Its monitor continues the record.
func TestARunWhoseEtcdLosesItsDataGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	file, store, record := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "store"), filepath.Join(dir, "record")
	const settings = "model: qp:dimension=4000,condition=30,noise=0.1\nblas: gonum\nworkers: 2\nservers: 2\nsteps: 120\ncheckpoint-every: 20\n"
	if err := os.WriteFile(file, []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	endpoint, peer, data := freeAddress(t), freeAddress(t), filepath.Join(dir, "etcd")
	etcd := func() *childProcess {
		p := start(t, "etcd", "--listen", endpoint, "--peer", "a="+peer, "--dir", data)
		waitListening(t, endpoint)
		return p
	}
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint}, more...)...)
	}
	everybody := func() []*childProcess {
		var all []*childProcess
		for i := range 2 {
			all = append(all, role("server", "--index", fmt.Sprint(i), "--store", store, "--end-with-run"), role("worker", "--index", fmt.Sprint(i), "--gradient-time", "20ms"))
		}
		return append(all, role("monitor", "--out", record))
	}
	first := etcd()
	coordinator := role("coordinator", "--store", store, "--end-with-run")
	all := everybody()
	eventually(t, "there is a checkpoint", func() bool {
		m, _, err := ckpt.Newest(vfs.OS{}, store)
		return err == nil && m.Step >= 20
	})
	first.signal(syscall.SIGKILL)
	<-first.ended
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	etcd()
	for _, p := range all {
		if r := p.wait(); r.status != exitFailed || !strings.Contains(r.stderr, "etcd has lost what it knew of this run") {
			t.Errorf("%v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
		}
	}
	for _, p := range append(everybody(), coordinator) {
		if r := p.wait(); r.status != exitDone {
			t.Errorf("started again, %v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
		}
	}
	undisturbed := newDir(t)
	must(t, quadratic(120, "--out", undisturbed)...)
	sameBits(t, store, undisturbed)
	r := readRun(t, record)
	if n := len(r.Views); n != 2 || r.Views[1].Line != 2 || r.Views[1].RestoredStep < 20 || r.Summary.Steps != 120 {
		t.Errorf("the record has %d steps and the views %+v", r.Summary.Steps, r.Views)
	}
}
