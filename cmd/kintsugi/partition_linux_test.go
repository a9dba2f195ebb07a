package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

var allCuts = flag.Bool("cuts", false, "cut hosts off in every way in TestHostsThatAreCutOff, and lose packets")

// apart is a run on four hosts. The first has etcd, the coordinator and the workers; each of the
// others has a server.
type apart struct {
	t      *testing.T
	hosts  *hosts
	client *etcd.Client
	store  string
	flags  []string

	*watching
	told map[kintsugi.ServerID]int // steps that the conductor there has reported
	step kintsugi.Step
}

func startApart(t *testing.T) *apart { return startApartWith(t, 0) }

// startApartWith is startApart with so many hosts more, of which each has another server. If there are
// any, no server is told its place.
func startApartWith(t *testing.T, spares int) *apart {
	a := &apart{t: t, hosts: newHosts(t, 4+spares, 0), store: filepath.Join(t.TempDir(), "store"), told: make(map[kintsugi.ServerID]int),
		flags: []string{"--model", "qp:dimension=4000,condition=30,noise=0.1", "--blas", "gonum", "--workers", "2", "--servers", "3", "--recovery", "chain",
			"--replicas", "3", "--decay", "constant", "--checkpoint-every", "100000000", "--seed", "5"}}
	first := a.hosts.list[0]
	address, client := first.etcd(t, "apart")
	a.client = client
	logs := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			files, _ := filepath.Glob(filepath.Join(logs, "*"))
			for _, f := range files {
				text, _ := os.ReadFile(f)
				t.Logf("%s:\n%s", filepath.Base(f), text[max(0, len(text)-4000):])
			}
		}
	})
	start := func(h *host, role string, index int, more ...string) {
		args := append([]string{role, "--etcd", address, "--run", "apart", "--steps", "100000000", "--gradient-time", "10ms"}, a.flags...)
		switch {
		case role == "server" && spares > 0:
			args = append(args, "--index", "auto")
		case role != "coordinator":
			args = append(args, "--index", strconv.Itoa(index))
		}
		if role != "worker" {
			args = append(args, "--store", a.store)
		}
		h.start(t, filepath.Join(logs, fmt.Sprintf("%s-%d.log", role, index)), append(args, more...)...)
	}
	start(first, "coordinator", 0)
	for i := range 3 + spares {
		h := a.hosts.list[1+i]
		start(h, "server", i, "--listen", h.address()+":0")
	}
	for i := range 2 {
		start(first, "worker", i)
	}
	a.watching = watch(t, a.client, a.listen)
	return a
}

// listen notes the steps that the conductor of a view reports. It asks from within the conductor's
// own host.
func (a *apart) listen(ctx context.Context, v kintsugi.View) {
	address := a.hosts.list[a.hostOf(v, v.Conductor)].reach(a.t, v.Servers[v.Conductor].Address)
	peer, err := transport.Dial(address)
	if err != nil {
		a.t.Error(err)
		return
	}
	defer peer.Close()
	for ctx.Err() == nil {
		a.mu.Lock()
		over, after := a.view.Number > v.Number && a.view.Conductor == v.Conductor, a.step
		a.mu.Unlock()
		if over {
			return
		}
		stream, err := peer.Watch(ctx)
		if err == nil {
			err = stream.Send(transport.WatchRequest{Line: v.Line, After: after})
		}
		for err == nil {
			var e kintsugi.RunEvent
			if e, err = stream.Recv(); err == nil {
				a.note(v, e)
			}
		}
		select { // one that does not conduct any more says so at once
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hostOf returns the number of the host that has a server in a view.
func (a *apart) hostOf(v kintsugi.View, id kintsugi.ServerID) int {
	i := slices.IndexFunc(a.hosts.list, func(h *host) bool { return strings.HasPrefix(v.Servers[id].Address, h.address()+":") })
	if i < 0 {
		a.t.Errorf("server/%d is on no host: %s", id, v.Servers[id].Address)
	}
	return max(i, 0)
}

func (a *apart) note(v kintsugi.View, e kintsugi.RunEvent) {
	s, ok := e.(kintsugi.StepEvent)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[v.Conductor]++
	a.step = max(a.step, s.Step)
}

// steps waits until n more steps are released.
func (a *apart) steps(n kintsugi.Step) {
	a.t.Helper()
	a.mu.Lock()
	from := a.step
	a.mu.Unlock()
	a.until(a.t, fmt.Sprintf("%d steps after step %d", n, from), func() bool { return a.step >= from+n })
}

// cutOff cuts a server's host off until the others have gone on without it, and then connects it
// again.
func (a *apart) cutOff(id kintsugi.ServerID, mute, deaf bool) {
	a.t.Helper()
	a.until(a.t, "every server has caught up", func() bool { return a.complete(3) })
	a.steps(20)
	a.mu.Lock()
	before := a.told[id]
	a.mu.Unlock()
	a.hosts.isolate(1+int(id), mute, deaf)
	a.until(a.t, fmt.Sprintf("the others go on without server/%d", id), func() bool { return !a.holds(id) })
	a.steps(50)
	a.mu.Lock()
	alone := a.told[id] - before
	a.mu.Unlock()
	if alone > 20 { // only those that were under way when it was cut off
		a.t.Errorf("server/%d tells of %d steps while it is cut off", id, alone)
	}
	a.hosts.isolate(1+int(id), false, false)
	a.until(a.t, "every server has caught up", func() bool { return a.complete(3) })
	a.t.Logf("server/%d was cut off (nobody hears it: %v, it hears nobody: %v) and is back in view %d at step %d", id, mute, deaf, a.view.Number, a.step)
}

// part cuts the replica at a place of the first chain off from its predecessor. All others reach
// both. Steps go on without one of the two until they are connected again.
func (a *apart) part(at int) {
	a.t.Helper()
	a.until(a.t, "every server has caught up", func() bool { return a.complete(3) })
	a.steps(20)
	a.mu.Lock()
	x, y := a.view.Chains[0][at-1], a.view.Chains[0][at]
	a.mu.Unlock()
	start := time.Now()
	a.hosts.part(1+int(x), 1+int(y), true)
	a.until(a.t, fmt.Sprintf("the others go on without server/%d or server/%d", x, y), func() bool { return !a.holds(x) || !a.holds(y) })
	took := time.Since(start)
	a.steps(50)
	a.mu.Lock()
	if a.holds(x) == a.holds(y) {
		a.t.Errorf("server/%d and server/%d are in, or out, both: %v", x, y, a.view.Chains)
	}
	a.mu.Unlock()
	a.hosts.part(1+int(x), 1+int(y), false)
	a.until(a.t, "every server has caught up", func() bool { return a.complete(3) })
	a.t.Logf("server/%d and server/%d did not reach each other, and one was left out after %v; both are back in view %d at step %d", x, y, took, a.view.Number, a.step)
}

// A host that is cut off, in both directions or in one, commits nothing while the others go on.
// When it can be reached again, it comes in as the tail. Of two hosts that do not reach each other,
// while all others reach both, one is left out until they do. The run ends with the bits of an
// undisturbed one.
func TestHostsThatAreCutOff(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	a := startApart(t)
	a.steps(50)
	a.mu.Lock()
	conductor := a.view.Conductor
	a.mu.Unlock()
	a.cutOff(conductor, true, true)
	a.part(1)
	if *allCuts {
		a.part(2)
		a.cutOff(conductor, true, true) // it does not conduct now
		for range 2 {
			a.mu.Lock()
			conductor = a.view.Conductor
			a.mu.Unlock()
			a.cutOff(conductor, true, false)
			a.cutOff((conductor+1)%3, false, true)
		}
		a.hosts.lose(0.05)
		a.steps(300)
		a.hosts.lose(0)
	}
	a.endsAsIfNothingWasCut()
}

// endsAsIfNothingWasCut ends the run, which has lost no step and has the bits of an undisturbed one.
func (a *apart) endsAsIfNothingWasCut() {
	t := a.t
	t.Helper()
	if err := a.client.PutStop(t.Context(), etcd.Stop{Checkpoint: true, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	done, ok := <-a.client.WatchDone(t.Context())
	if !ok {
		t.Fatal("the run does not end")
	}
	if len(a.lines) > 1 {
		t.Errorf("the run went over lines %v: steps were taken back", a.lines)
	}
	calm := newDir(t)
	must(t, append(append([]string{"train", "--out", calm, "--steps", fmt.Sprint(done.Step)}, a.flags...), "--recovery", "checkpoint", "--replicas", "1")...)
	sameBits(t, a.store, calm)
}

// A spare on a host of its own takes the place of a server whose host is cut off, and gets what that
// one held from the other replicas. When the host is back, its server learns that it has lost its
// place, and is a spare itself once it is started again; and so on, with the spare in the other role.
func TestASpareTakesThePlaceOfAHostThatIsCutOff(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	a := startApartWith(t, 1)
	a.steps(50)
	rounds := 1
	if *allCuts {
		rounds = 3
	}
	for range rounds {
		a.until(t, "every server has caught up", func() bool { return a.complete(3) })
		a.mu.Lock()
		id := a.view.Conductor
		at := a.hostOf(a.view, id)
		a.mu.Unlock()
		a.hosts.isolate(at, true, true)
		a.until(t, "the spare has its place, and what it held", func() bool { return a.hostOf(a.view, id) != at && a.complete(3) })
		a.steps(50)
		a.hosts.isolate(at, false, false)
		eventually(t, "the server that has lost its place waits for one", func() bool {
			waiting, err := a.client.Waiting(t.Context(), etcd.Server)
			return err == nil && len(waiting) == 1
		})
		a.mu.Lock()
		t.Logf("host %d lost server/%d to host %d, and waits for a place at step %d", at, id, a.hostOf(a.view, id), a.step)
		a.mu.Unlock()
	}
	a.endsAsIfNothingWasCut()
}
