package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Batch systems start processes and want them to end. With --end-with-run all do, workers first, and so does one that is started again when all is over.
func TestRolesThatAreAskedToEndWithTheRun(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	file, endpoint := filepath.Join(dir, "run.yaml"), freeAddress(t)
	if err := os.WriteFile(file, []byte("model: qp\nworkers: 2\nservers: 2\nsteps: 20\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint, "--store", filepath.Join(dir, "store")}, more...)...)
	}
	all := []*childProcess{
		role("coordinator", "--end-with-run"), role("server", "--index", "0", "--end-with-run"), role("server", "--index", "1", "--end-with-run"),
		role("worker", "--index", "0"), role("worker", "--index", "1"),
	}
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
	must(t, "checkpoint", "verify", filepath.Join(dir, "store"))
}
