package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

var (
	oneWay   = flag.Duration("delay", 5*time.Millisecond, "how long a packet between two hosts of BenchmarkKillsAfar is under way")
	farFlags = flag.String("flags", "", "settings of the run of BenchmarkKillsAfar, such as \"--model cnn --batch 1\"")
)

// BenchmarkKillsAfar measures how long steps stand still when a server is killed whose host is far
// from all others, as in another zone, with few servers and with many, and how long a step takes.
// There are chains of two, and a host for each server, one for the workers, and one for the coordinator
// and etcd. The server comes back after a second. So there are two gaps between steps, one for each
// view, of which the longer one counts.
func BenchmarkKillsAfar(b *testing.B) {
	for _, n := range []int{2, 8} {
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) {
			r := startAfar(b, n, *oneWay, strings.Fields(*farFlags)...)
			r.until(b, "every server has caught up", func() bool { return r.complete(2) })
			r.goOn(b, 10)
			first := r.perStep(b) // each server heads a shard
			var stood, step []float64
			for i := 0; b.Loop(); i++ {
				stood = append(stood, r.kill(b, i).Seconds())
				step = append(step, r.perStep(b))
			}
			b.ReportMetric(first, "s-first")
			b.ReportMetric(bench.Median(stood), "s-stood")
			b.ReportMetric(bench.Median(step), "s-step")
		})
	}
}

// A replica catches up though its answers are longer under way than a step takes: the two servers are
// far from each other, and the workers are near both.
func TestAReplicaFarFromItsHeadCatchesUp(t *testing.T) {
	onlyLong(t)
	r := startAfar(t, 2, 0)
	r.hosts.far(2, 3, 50*time.Millisecond)
	r.kill(t, 0)
}

// afar is a run on hosts that are far from one another. The first has etcd and the coordinator, the
// second the workers, and each of the others a server.
type afar struct {
	hosts *hosts
	kills []func(down time.Duration) // by server
	steps chan released
	step  kintsugi.Step // the newest that was taken from steps
	*watching
}

// released is a step that the conductor has told of.
type released struct {
	step kintsugi.Step
	at   time.Time
}

// startAfar starts a run on hosts between which a packet takes delay.
func startAfar(t testing.TB, servers int, delay time.Duration, settings ...string) *afar {
	t.Helper()
	r := &afar{hosts: newHosts(t, 2+servers, delay), steps: make(chan released, 1<<10)}
	first := r.hosts.list[0]
	address, client := first.etcd(t, "afar")
	dir := t.TempDir()
	start := func(h *host, role string, more ...string) func(time.Duration) {
		args := []string{role, "--etcd", address, "--run", "afar", "--steps", "100000000", "--gradient-time", "10ms",
			"--workers", "2", "--servers", strconv.Itoa(servers), "--recovery", "chain", "--replicas", "2", "--checkpoint-every", "100000000"}
		return h.start(t, filepath.Join(dir, fmt.Sprintf("%s-%d.log", role, h.number)), slices.Concat(args, settings, more)...)
	}
	store := []string{"--store", filepath.Join(dir, "store")}
	start(first, "coordinator", store...)
	for i, h := range r.hosts.list[2:] {
		r.kills = append(r.kills, start(h, "server", append(store, "--index", strconv.Itoa(i), "--listen", h.address()+":0")...))
	}
	for i := range 2 {
		start(r.hosts.list[1], "worker", "--index", strconv.Itoa(i))
	}
	r.watching = watch(t, client, func(ctx context.Context, v kintsugi.View) { r.listen(ctx, t, v) })
	return r
}

// listen passes on the steps that the conductor of a view tells of, from within the conductor's host.
func (r *afar) listen(ctx context.Context, t testing.TB, v kintsugi.View) {
	peer, err := transport.Dial(r.hosts.list[2+v.Conductor].reach(t, v.Servers[v.Conductor].Address))
	if err != nil {
		t.Error(err)
		return
	}
	defer peer.Close()
	for ctx.Err() == nil {
		r.mu.Lock()
		over := r.view.Number > v.Number
		r.mu.Unlock()
		if over {
			return
		}
		stream, err := peer.Watch(ctx)
		if err == nil {
			err = stream.Send(transport.WatchRequest{Line: v.Line})
		}
		for err == nil {
			var e kintsugi.RunEvent
			if e, err = stream.Recv(); err != nil {
				break
			}
			if s, ok := e.(kintsugi.StepEvent); ok {
				select {
				case r.steps <- released{s.Step, time.Now()}:
				case <-ctx.Done():
				}
			}
		}
		select { // one that does not conduct yet says so at once
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// kill kills a server, but not the one that conducts, and returns the longest time between two steps
// until steps go on with it again.
func (r *afar) kill(t testing.TB, i int) (longest time.Duration) {
	r.until(t, "every server has caught up", func() bool { return r.complete(2) })
	r.goOn(t, 10)
	r.mu.Lock()
	conductor := int(r.view.Conductor)
	r.mu.Unlock()
	r.kills[(conductor+1+i%(len(r.kills)-1))%len(r.kills)](time.Second)
	longest = r.goOn(t, 10)
	r.until(t, "the server has come back", func() bool { return r.complete(2) })
	return max(longest, r.goOn(t, 10))
}

// perStep returns the seconds that a step takes.
func (r *afar) perStep(t testing.TB) float64 {
	begun := time.Now()
	r.goOn(t, 10)
	return time.Since(begun).Seconds() / 10
}

// goOn waits for n steps that are released from now on, and returns the longest time without one.
func (r *afar) goOn(t testing.TB, n int) (longest time.Duration) {
	t.Helper()
	for last := time.Now(); n > 0; {
		var x released
		select {
		case x = <-r.steps:
		case <-time.After(time.Minute):
			t.Fatal("no step was released for a minute")
		}
		if x.step <= r.step {
			continue // a conductor tells a new watcher of all steps
		}
		if r.step = x.step; x.at.After(last) {
			longest, last, n = max(longest, x.at.Sub(last)), x.at, n-1
		}
	}
	return longest
}
