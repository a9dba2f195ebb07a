package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// three is a cluster of three etcds with the same keys, as processes of the test binary.
type three struct {
	peers, clients, dirs []string
	list                 [3]*childProcess
}

func startThree(t *testing.T) *three {
	t.Helper()
	x := &three{}
	for i := range x.list {
		x.peers = append(x.peers, "--peer", fmt.Sprintf("e%d=%s", i, freeAddress(t)))
		x.clients, x.dirs = append(x.clients, freeAddress(t)), append(x.dirs, t.TempDir())
	}
	for i := range x.list {
		x.start(t, i)
	}
	return x
}

func (x *three) start(t *testing.T, i int) {
	t.Helper()
	x.list[i] = start(t, append([]string{"etcd", "--name", fmt.Sprintf("e%d", i), "--listen", x.clients[i], "--dir", x.dirs[i], "--beat", "50ms"}, x.peers...)...)
}

func (x *three) kill(i int) {
	x.list[i].signal(syscall.SIGKILL)
	<-x.list[i].ended
}

// A run uses three etcds. One of them is killed, and then a server: the failover needs etcd, and
// two etcds are enough. The killed etcd comes back with its data, so another one may die. With two
// of them gone, nothing is decided.
func TestThreeEtcdsOutliveOneOfThem(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	const steps = 200
	x := startThree(t)
	want, dir := newDir(t), newDir(t)
	must(t, quadratic(steps, "--out", want)...)
	p := start(t, quadratic(steps, "--out", dir, "--recovery", "checkpoint", "--checkpoint-every", "20", "--gradient-time", "5ms",
		"--etcd", strings.Join(x.clients, ","), "--fault", "kill server/1 at step 120")...)
	p.reaches(dir, 60)
	x.kill(0)
	if r := p.wait(); r.status != exitDone {
		t.Fatalf("exit status %d:\n%s", r.status, r.stderr)
	}
	sameBits(t, dir, want)

	c, err := etcd.Dial(t.Context(), x.clients, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fence := kintsugi.Fence(0)
	take := func() {
		eventually(t, "a fence is taken", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			next, err := c.NextFence(ctx, 0) // a request that was under way when one died may have taken effect, so at most one number is skipped
			if err == nil && next <= fence {
				t.Fatalf("fence %d after %d", next, fence)
			}
			fence = max(fence, next)
			return err == nil
		})
	}
	take()
	x.start(t, 0)
	x.kill(1) // the third one alone cannot answer: the first must be back by now
	take()
	x.kill(2)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if f, err := c.NextFence(ctx, 0); err == nil {
		t.Errorf("one of three gives fence %d alone", f)
	}
	x.start(t, 2)
	take()
	x.list[0].signal(syscall.SIGTERM)
	if r := x.list[0].wait(); r.status != exitDone {
		t.Errorf("an etcd that is asked to end does so with status %d:\n%s", r.status, r.stderr)
	}
}

func TestPeersOfEtcdAreRead(t *testing.T) {
	for _, args := range [][]string{
		{"--peer", "nobody"},
		{"--peer", "a=h:1", "--peer", "a=h:2"},
		{"--name", "x"},
		{"--peer", "a=h:1", "--peer", "b=h:2"},
		{},
	} {
		if r := kin(t, append([]string{"etcd"}, args...)...); r.status != exitConfig {
			t.Errorf("%q ended with status %d: %s", args, r.status, r.stderr)
		}
	}
}
