package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// Nobody numbers machines that come and go. A process that is started with --index auto takes a place
// that is empty, or waits for one; and comes back to its own, at once, if it dies and its machine does
// not. At the end, those that still wait end too.
func TestProcessesThatNobodyNumbersTakeAnyPlace(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	file, endpoint := filepath.Join(dir, "run.yaml"), freeAddress(t)
	const settings = "model: qp\nworkers: 2\nservers: 2\nreplicas: 2\nsteps: 1000000\n"
	if err := os.WriteFile(file, []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	client, err := etcd.Dial(t.Context(), []string{endpoint}, "default")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	on := func(host, name string, more ...string) *childProcess {
		return start(t, append([]string{"XDG_RUNTIME_DIR=" + filepath.Join(dir, host), name, "--config", file, "--etcd", endpoint, "--store", filepath.Join(dir, "store")}, more...)...)
	}
	server := func(host string) *childProcess { return on(host, "server", "--index", "auto", "--end-with-run") }
	worker := func(host string) *childProcess { return on(host, "worker", "--index", "auto") }
	// fills waits until a process fills a place of its kind.
	fills := func(p *childProcess, kind etcd.Kind, index uint32, life kintsugi.Incarnation) {
		t.Helper()
		eventually(t, "a process is in its place", func() bool {
			members, err := client.Members(t.Context(), kind)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range members {
				var v role.WorkerValue // a server says nothing of its process
				if err := json.Unmarshal(m.Value, &v); err != nil {
					t.Fatal(err)
				}
				if m.Index == index && m.Incarnation == life && (kind == etcd.Server || v.PID == p.cmd.Process.Pid) {
					return true
				}
			}
			return false
		})
	}
	ends := func(p *childProcess, status int) {
		t.Helper()
		if r := p.wait(); r.status != status {
			t.Errorf("%v ended with status %d, want %d: %s", p.cmd.Args[1:], r.status, status, r.stderr)
		}
	}
	coordinator := on("a", "coordinator", "--end-with-run")
	servers, workers := []*childProcess{server("a")}, []*childProcess{worker("a")}
	fills(servers[0], etcd.Server, 0, 1)
	fills(workers[0], etcd.Worker, 0, 1)
	servers, workers = append(servers, server("b")), append(workers, worker("b"))
	fills(servers[1], etcd.Server, 1, 1)
	fills(workers[1], etcd.Worker, 1, 1)
	eventually(t, "the run has begun", func() bool {
		v, _, err := client.View(t.Context())
		return err == nil && v != nil
	})
	servers, workers = append(servers, server("c")), append(workers, worker("c"), worker("d"))

	workers[0].signal(syscall.SIGTERM)
	ends(workers[0], exitPreempted)
	first, second := workers[2], workers[3] // of those that wait, either may be first
	eventually(t, "one of two that wait has the place of a worker that has left", func() bool {
		members, err := client.Members(t.Context(), etcd.Worker)
		if err != nil || len(members) == 0 || members[0].Index != 0 {
			return false
		}
		var v role.WorkerValue
		if err := json.Unmarshal(members[0].Value, &v); err != nil {
			t.Fatal(err)
		}
		if v.PID == second.cmd.Process.Pid {
			first, second = second, first
		}
		return v.PID == first.cmd.Process.Pid && members[0].Incarnation == 2
	})

	// The other one that waits would have the place of a process that dies only when the lease has
	// lapsed. The next process on that machine has it before.
	workers[1].signal(syscall.SIGKILL)
	workers[1].wait()
	again := worker("b")
	fills(again, etcd.Worker, 1, 2)
	servers[0].signal(syscall.SIGTERM)
	ends(servers[0], exitPreempted)
	fills(servers[2], etcd.Server, 0, 2)

	must(t, "stop", "--etcd", endpoint)
	for _, p := range []*childProcess{first, second, again, servers[1], servers[2], coordinator} {
		ends(p, exitDone)
	}
	must(t, "checkpoint", "verify", filepath.Join(dir, "store"))
}

// The terms of a run may change while a spare waits: what it has met is over, and the same name is
// another run's.
func TestASpareWithOtherTermsThanTheRunHasByNowTakesNoPlace(t *testing.T) {
	t.Parallel()
	endpoint, client := newEtcd(t)
	place, err := client.Register(t.Context(), etcd.Worker, 0, role.WorkerValue{}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	spare := start(t, "XDG_RUNTIME_DIR="+t.TempDir(), "worker", "--model", "qp", "--workers", "1", "--index", "auto", "--etcd", endpoint)
	eventually(t, "the spare waits", func() bool {
		hosts, err := client.Waiting(t.Context(), etcd.Worker)
		return err == nil && len(hosts) == 1
	})
	if _, err := client.PutView(t.Context(), 0, kintsugi.View{Number: 1, Terms: kintsugi.Terms{Protocol: kintsugi.ProtocolVersion, Model: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := place.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := spare.wait(); r.status != exitConfig || !strings.Contains(r.stderr, "this worker has a model with fingerprint") {
		t.Errorf("it ends with status %d:\n%s", r.status, r.stderr)
	}
	if members, err := client.Members(t.Context(), etcd.Worker); len(members) > 0 || err != nil {
		t.Errorf("%v are there: %v", members, err)
	}
}
