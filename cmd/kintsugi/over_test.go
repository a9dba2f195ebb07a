package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// Batch systems start processes in any order and expect them to end. With --etcd-wait, processes
// wait for etcd. With --end-with-run all of them end, workers first, and so does one that is
// started again when the run is over, or for the first time.
func TestRolesThatAreAskedToEndWithTheRun(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	file, endpoint := filepath.Join(dir, "run.yaml"), freeAddress(t)
	if err := os.WriteFile(file, []byte("model: qp\nworkers: 2\nservers: 2\nsteps: 20\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint, "--etcd-wait", patience.String(), "--store", filepath.Join(dir, "store")}, more...)...)
	}
	all := []*childProcess{
		role("coordinator", "--end-with-run"), role("server", "--index", "0", "--end-with-run"), role("server", "--index", "1", "--end-with-run"),
		role("worker", "--index", "0"), role("worker", "--index", "1"),
	}
	if r := role("worker", "--index", "0", "--etcd-wait", "100ms").wait(); r.status != exitFailed || !strings.Contains(r.stderr, "etcd") {
		t.Errorf("without etcd a worker ends with status %d: %s", r.status, r.stderr)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	ended := func(p *childProcess) {
		t.Helper()
		if r := p.wait(); r.status != exitDone {
			t.Errorf("%v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
		}
	}
	for _, p := range all {
		ended(p)
	}
	ended(role("server", "--index", "1", "--end-with-run"))
	ended(role("coordinator", "--end-with-run"))
	ended(role("worker", "--index", "1")) // there is no server that could tell it
	must(t, "checkpoint", "verify", filepath.Join(dir, "store"))
}

// Servers stay when a run is over, so that its last version can be read. If one of them dies and
// comes back, nothing is saved once more, since the result is saved.
func TestAServerThatDiesAfterTheEndHasNothingSavedAgain(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for _, replicas := range []string{"1", "2"} {
		dir := t.TempDir()
		file, endpoint, store := filepath.Join(dir, "run.yaml"), freeAddress(t), filepath.Join(dir, "store")
		if err := os.WriteFile(file, []byte("model: qp\nworkers: 1\nservers: 2\nsteps: 20\ncheckpoint-every: 5\nreplicas: "+replicas+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
		waitListening(t, endpoint)
		role := func(name string, more ...string) *childProcess {
			return start(t, append([]string{name, "--config", file, "--etcd", endpoint, "--store", store}, more...)...)
		}
		role("coordinator")
		role("server", "--index", "0")
		victim := role("server", "--index", "1")
		role("worker", "--index", "0").wait()
		client, err := etcd.Dial(t.Context(), []string{endpoint}, "default")
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		before := must(t, "checkpoint", "list", store)
		old, _, err := client.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		victim.signal(syscall.SIGKILL)
		victim.wait()
		role("server", "--index", "1")
		eventually(t, "the conductor of the next view has ended the run again", func() bool {
			v, _, err := client.View(t.Context())
			if err != nil || v.Number == old.Number {
				return false
			}
			events, _ := look.Listen(t.Context(), *v, nil, 100*time.Millisecond)
			return slices.ContainsFunc(events, func(e kintsugi.RunEvent) bool { _, over := e.(kintsugi.Done); return over })
		})
		if after := must(t, "checkpoint", "list", store); after != before {
			t.Errorf("with %s replicas there were\n%s\nand now there are\n%s", replicas, before, after)
		}
	}
}

// All roles share one file of settings. A role that computes no gradients needs no GPU for them.
func TestAGPUThatOtherRolesHaveIsNotMissed(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte("model: mlp\ndevice: cuda:77\nserver-device: cuda:77\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for role, lacks := range map[string]string{"coordinator": "etcd", "monitor": "etcd", "server": "--server-device cuda:77", "worker": "--device cuda:77"} {
		if r := start(t, role, "--config", file, "--etcd", "127.0.0.1:1", "--etcd-wait", "100ms").wait(); r.status == exitDone || !strings.Contains(r.stderr, lacks) {
			t.Errorf("a %s ends with status %d, and lacks something else: %s", role, r.status, r.stderr)
		}
	}
	worker := start(t, "worker", "--index", "0", "--config", file, "--device", "cpu", "--etcd", "127.0.0.1:1", "--etcd-wait", "100ms").wait()
	if worker.status != exitFailed || !strings.Contains(worker.stderr, "etcd") {
		t.Errorf("a worker misses the GPU of servers: status %d: %s", worker.status, worker.stderr)
	}
}
