package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// freeAddress returns an address at which nothing listens. Its port is outside the range from which
// the system takes ports for clients, and for listeners that ask for any port.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// waitListening waits until an etcd listens. Roles wait for it only for some seconds.
func waitListening(t *testing.T, address string) {
	t.Helper()
	eventually(t, "etcd is there", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err == nil
	})
}

// All connections of a run use TLS: to etcd, between servers and workers, and to the memory of
// another process. A server is killed after certificates were renewed. Its next life and all others
// use the new ones, and the run ends with the bits of one without TLS.
func TestARunByTLSGoesOnThroughTheDeathOfAServer(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	certs, want, dir := filepath.Join(t.TempDir(), "certs"), newDir(t), newDir(t)
	must(t, "certs", "--out", certs)
	address := freeAddress(t)
	start(t, "memory", "--listen", address, "--tls", certs)
	store := object.MemoryScheme + address
	mlp := []string{"train", "--model", "mlp", "--data", "idx", "--data-dir", writeImages(t, 300, 28), "--blas", "gonum", "--batch", "6", "--workers", "2", "--steps", "200"}
	must(t, append(mlp, "--out", want)...)
	p := start(t, append(mlp, "--out", dir, "--tls", certs, "--wire", "grpc", "--store", store, "--recovery", "checkpoint", "--checkpoint-every", "10",
		"--gradient-time", "10ms")...)
	p.reaches(dir, 5)
	must(t, "certs", "--out", certs)
	for pid, args := range leftOf(t, dir) {
		if strings.Contains(args, "server --index 1 ") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := p.wait(); r.status != exitDone {
		t.Fatalf("exit status %d:\n%s", r.status, r.stderr)
	}
	if s := readRun(t, dir).Summary; len(s.Failures) != 1 || s.Steps != 200 {
		t.Errorf("%d steps, failures %+v", s.Steps, s.Failures)
	}
	sameBits(t, dir, want)
	log, err := os.ReadFile(filepath.Join(record.LogsDir(dir), "server-0.log"))
	if err != nil || !strings.Contains(string(log), "read new credentials") {
		t.Errorf("the server that lived says nothing of new credentials: %v\n%s", err, log)
	}
	must(t, "checkpoint", "verify", store+"/run", "--tls", certs)
	if r := kin(t, "checkpoint", "verify", store+"/run"); r.status != exitFailed || !strings.Contains(r.stderr, "speaks TLS: use --tls here too") {
		t.Errorf("without --tls, exit status %d: %s", r.status, r.stderr)
	}
	noOrphans(t, dir)
}

// Roles are started one by one, each with a folder that has only its own credentials. A process
// that uses another role's credentials is refused, and the refusal names it.
func TestRolesHaveEachTheirOwnCredentials(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	certs, data, want := filepath.Join(t.TempDir(), "certs"), t.TempDir(), newDir(t)
	must(t, "certs", "--out", certs, "coordinator", "server/0", "worker/0", "etcd", "operator")
	model := []string{"--model", "qp:dimension=400,condition=30,noise=0.1", "--blas", "gonum", "--workers", "1", "--servers", "1", "--steps", "50", "--recovery", "checkpoint"}
	must(t, append([]string{"train", "--out", want}, model...)...)
	endpoint := freeAddress(t)
	store := filepath.Join(data, "store")
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(data, "etcd"), "--tls", filepath.Join(certs, "etcd"))
	role := func(name, folder string, more ...string) *childProcess {
		return start(t, append(append([]string{name, "--etcd", endpoint, "--tls", filepath.Join(certs, folder)}, model...), more...)...)
	}
	var all []*childProcess
	waitListening(t, endpoint)
	all = append(all,
		role("coordinator", "coordinator", "--store", store),
		role("server", "server/0", "--store", store, "--index", "0"),
		role("worker", "worker/0", "--index", "0"))
	if r := role("worker", "server/0", "--index", "0").wait(); r.status != exitConfig || !strings.Contains(r.stderr, "cert.pem is the certificate of server/0") {
		t.Errorf("a worker with the certificate of a server ended with status %d: %s", r.status, r.stderr)
	}
	if r := all[2].wait(); r.status != exitDone {
		t.Fatalf("the worker ended with status %d: %s", r.status, r.stderr)
	}
	sameBits(t, store, want)
	for _, p := range all[:2] { // the servers, which stay for readers of the last version
		p.signal(syscall.SIGTERM)
		if r := p.wait(); r.status != exitDone {
			t.Errorf("asked to go when the run is over, a coordinator or server ended with status %d, not 0: %s", r.status, r.stderr)
		}
	}
}
