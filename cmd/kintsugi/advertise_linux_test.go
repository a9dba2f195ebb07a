package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Servers that listen on all addresses, as in containers, are reached where their ports are
// published.
func TestServersAreReachedWhereTheySay(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	file, endpoint, store := filepath.Join(dir, "run.yaml"), freeAddress(t), filepath.Join(dir, "store")
	const settings = "model: qp:dimension=4000,condition=30,noise=0.1\nblas: gonum\nworkers: 2\nservers: 2\nsteps: 60\n"
	if err := os.WriteFile(file, []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint}, more...)...)
	}
	all := []*childProcess{role("coordinator", "--store", store, "--end-with-run")}
	var reached [2]atomic.Int64
	for i := range reached {
		published, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(freeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		forward(t, published, func() (net.Conn, error) {
			reached[i].Add(1)
			return net.Dial("tcp4", net.JoinHostPort("127.0.0.1", port))
		})
		all = append(all, role("server", "--index", strconv.Itoa(i), "--listen", ":"+port, "--advertise", published.Addr().String(), "--store", store, "--end-with-run"),
			role("worker", "--index", strconv.Itoa(i)))
	}
	for _, p := range all {
		r := p.wait()
		if r.status != exitDone {
			t.Errorf("%v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
		}
		if strings.Contains(r.stderr, "of this host alone") {
			t.Errorf("%v says that others do not reach it: %s", p.cmd.Args[1:], r.stderr)
		}
	}
	for i := range reached {
		if n := reached[i].Load(); n < 3 { // two workers and the coordinator
			t.Errorf("server %d was reached %d times where it is published", i, n)
		}
	}
}
