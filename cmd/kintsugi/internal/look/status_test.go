package look

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

func member(t *testing.T, index uint32, incarnation kintsugi.Incarnation, value any) etcd.Member {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return etcd.Member{Index: index, Incarnation: incarnation, Value: b}
}

func TestStatusSaysWhatThereIs(t *testing.T) {
	now := time.Unix(1000, 0)
	view := &kintsugi.View{Number: 7, Line: 2, RestoreStep: 40, Conductor: 0, Reason: "server/3 is gone: line 2 goes on",
		Servers: []kintsugi.Member{{Server: 0, Incarnation: 1}, {Server: 1, Incarnation: 4, Since: 6}, {Server: 2, Incarnation: 1}, {Server: 3, Incarnation: 1}},
		Chains:  [][]kintsugi.ServerID{{0, 1}, {2, 1}, {2, 0}, {0, 1}}}
	servers := []etcd.Member{
		member(t, 0, 1, role.ServerValue{Address: "a:1", Apart: []kintsugi.Life{{Server: 2, Incarnation: 9}, {Server: 3, Incarnation: 2}}}),
		member(t, 1, 4, role.ServerValue{Address: "b:1", Whole: 5}),
		member(t, 2, 1, role.ServerValue{Address: "c:1", Leaving: true}),
		member(t, 3, 2, role.ServerValue{Address: "d:1"}),
	}
	var events []kintsugi.RunEvent
	for i := range 100 {
		events = append(events, kintsugi.StepEvent{Step: kintsugi.Step(41 + i), Time: now.Add(time.Duration(i-100) * 100 * time.Millisecond), Loss: 0.5, Workers: 2})
	}
	events = append(events, kintsugi.CheckpointEvent{Step: 90}, kintsugi.CheckpointEvent{Step: 120, Running: true}, kintsugi.CheckpointEvent{Step: 130, Err: "the store is full"})
	all := facts{view: view, servers: servers, workers: []etcd.Member{{Index: 3}, {Index: 0}}, leader: "host/1", events: events}
	for name, x := range map[string]struct {
		change func(*facts)
		want   string
		fails  string
	}{
		"it runs": {func(*facts) {}, `run r: step 140, 0.1 s ago, 10 a second, loss 0.5, 2 workers; full checkpoint of step 90
the newest save failed: the store is full
view 7, line 2: server/3 is gone: line 2 goes on
coordinator: host/1
server/0  a:1  conducts; heads shard 0, 3; has shard 2; does not reach server/3
server/1  b:1  has shard 0, 1, 3; catches up
server/2  c:1  heads shard 1, 2; is about to go
server/3  d:1  has a lease as incarnation 2, and the view goes on without it
2 workers are there: worker/0, worker/3
`, ""},
		"it stands": {func(f *facts) {
			stand := kintsugi.StandEvent{Waits: "gradients: 1 are here, none of workers [3], which are connected"}
			f.events, f.servers = []kintsugi.RunEvent{kintsugi.StandEvent{Waits: "what was long ago"}, kintsugi.StepEvent{Step: 90, Time: now.Add(-time.Minute), Loss: 0.5, Workers: 2}, stand}, servers[:1]
			f.view = &kintsugi.View{Number: 1, Line: 1, Reason: "all have registered", Servers: []kintsugi.Member{{Server: 0, Incarnation: 1}}, Chains: [][]kintsugi.ServerID{{0}}}
		}, `run r: step 90, 60.0 s ago, 0 a second, loss 0.5, 2 workers; full checkpoint of step 0
no step is taken: the run waits for gradients: 1 are here, none of workers [3], which are connected
view 1, line 1: all have registered
coordinator: host/1
server/0  a:1  conducts; heads shard 0
2 workers are there: worker/0, worker/3
`, ""},
		"it goes on": {func(f *facts) {
			f.events, f.servers = []kintsugi.RunEvent{kintsugi.StandEvent{Waits: "what was long ago"}, kintsugi.StepEvent{Step: 90, Time: now, Loss: 0.5, Workers: 2}}, servers[:1]
			f.view = &kintsugi.View{Number: 1, Line: 1, Reason: "all have registered", Servers: []kintsugi.Member{{Server: 0, Incarnation: 1}}, Chains: [][]kintsugi.ServerID{{0}}}
		}, `run r: step 90, 0.0 s ago, 0 a second, loss 0.5, 2 workers; full checkpoint of step 0
view 1, line 1: all have registered
coordinator: host/1
server/0  a:1  conducts; heads shard 0
2 workers are there: worker/0, worker/3
`, ""},
		"nobody is there": {func(f *facts) {
			f.servers, f.workers, f.leader, f.events, f.silent = nil, nil, "", nil, errors.New("it is away")
		}, `run r: step 40; full checkpoint of step 40
view 7, line 2: server/3 is gone: line 2 goes on
coordinator: nobody leads, so nobody that dies is replaced
server/0  -  is not there; conducts; heads shard 0, 3; has shard 2
server/1  -  is not there; has shard 0, 1, 3
server/2  -  is not there; heads shard 1, 2
server/3  -  is not there
0 workers are there
`, "server/0, which conducts, does not tell how far the run is: it is away"},
		"it is over": {func(f *facts) {
			f.done = &kintsugi.Done{Step: 150, Reason: kintsugi.AllSteps}
			f.servers, f.workers = nil, nil
		}, `run r: over at step 150: all steps are done
the newest save failed: the store is full
view 7, line 2: server/3 is gone: line 2 goes on
coordinator: host/1
server/0  -  is not there; conducts; heads shard 0, 3; has shard 2
server/1  -  is not there; has shard 0, 1, 3
server/2  -  is not there; heads shard 1, 2
server/3  -  is not there
0 workers are there
`, ""},
		"it has not begun": {func(f *facts) { f.view, f.events, f.servers = nil, nil, servers[3:] }, `run r: not begun
coordinator: host/1
server/3  d:1  is there
2 workers are there: worker/0, worker/3
`, "the run has not begun: there is no view before all servers have registered and a coordinator leads"},
		"its store fails": {func(f *facts) { f.view, f.events, f.servers, f.waits = nil, nil, servers[3:], "bucket runs is full" }, `run r: not begun
coordinator: host/1
it waits for the store: bucket runs is full
server/3  d:1  is there
2 workers are there: worker/0, worker/3
`, "the run has not begun: it waits for its store, and begins by itself once that can be read and written"},
		"there is none": {func(f *facts) { *f = facts{} }, `run r: not begun
coordinator: nobody leads, so nobody that dies is replaced
0 workers are there
`, "etcd knows nothing of this run, nor of any other: check --etcd"},
		"there is another one": {func(f *facts) { *f = facts{others: []string{"mnist", "mnist-2"}} }, `run r: not begun
coordinator: nobody leads, so nobody that dies is replaced
0 workers are there
`, "etcd knows nothing of this run: check --run. It knows mnist, mnist-2"},
		"there are many others": {func(f *facts) { *f = facts{others: strings.Split("a b c d e f g h i j k l", " ")} }, `run r: not begun
coordinator: nobody leads, so nobody that dies is replaced
0 workers are there
`, "etcd knows nothing of this run: check --run. It knows 12 others, among them a, b, c, d, e, f, g, h, i, j"},
	} {
		f := all
		x.change(&f)
		s := f.status(now)
		s.Run = "r"
		var b strings.Builder
		if err := s.write(&b); err != nil {
			t.Fatal(err)
		}
		if b.String() != x.want {
			t.Errorf("%s: it says\n%s\nwant\n%s", name, b.String(), x.want)
		}
		if got := fmt.Sprint(s.trouble); got != x.fails && (s.trouble != nil || x.fails != "") {
			t.Errorf("%s: trouble %q, want %q", name, got, x.fails)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatusNamesTheHostsOfSpares(t *testing.T) {
	for want, x := range map[string]facts{
		"1 more server waits for a place, on h1\n":                                             {spares: [2][]string{{"h1"}, nil}},
		"3 more workers wait for a place, on h2, h2, h3\n":                                     {spares: [2][]string{nil, {"h2", "h2", "h3"}}},
		"2 more servers wait for a place, on h1, h2\n1 more worker waits for a place, on h3\n": {spares: [2][]string{{"h1", "h2"}, {"h3"}}},
	} {
		var out strings.Builder
		status := x.status(time.Unix(1000, 0))
		if err := status.write(&out); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(out.String(), "0 workers are there\n"); got != want {
			t.Errorf("status says\n%s\nwant\n%s", got, want)
		}
	}
}
