package train

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

func TestPresenceTellsOfEachComingAndGoingOnce(t *testing.T) {
	var p presence
	var story []string
	book := func(gone []departure, came []launch.Part) {
		for _, d := range gone {
			story = append(story, fmt.Sprintf("%v#%d gone: %s", d.part, d.incarnation, d.cause))
		}
		for _, part := range came {
			story = append(story, part.String()+" there")
		}
	}
	now := time.Unix(1, 0)
	leases := func(role launch.Role, incarnations ...kintsugi.Incarnation) {
		var list []etcd.Member
		for i, inc := range incarnations {
			if inc > 0 {
				list = append(list, etcd.Member{Index: uint32(i), Incarnation: inc})
			}
		}
		book(p.members(now, role, list))
	}
	view := func(reason string, chains [][]kintsugi.ServerID, incarnations ...kintsugi.Incarnation) {
		v := kintsugi.View{Reason: reason, Chains: chains}
		for _, inc := range incarnations {
			v.Servers = append(v.Servers, kintsugi.Member{Incarnation: inc})
		}
		book(p.views(now, v))
	}
	both := [][]kintsugi.ServerID{{0, 1}, {1, 0}}
	leases(launch.Server, 1, 1)
	leases(launch.Worker, 1, 1)
	view("all are here", both, 1, 1)
	leases(launch.Worker, 1, 1) // nothing has changed
	view("server/1 is gone", [][]kintsugi.ServerID{{0}, {0}}, 1, 1)
	leases(launch.Server, 1, 0) // known already
	leases(launch.Server, 1, 2)
	view("server/1 comes in", both, 1, 2)
	view("server/0 has restarted", both, 3, 2) // heard before etcd reports it
	leases(launch.Server, 3, 2)
	leases(launch.Worker, 1, 0)
	leases(launch.Worker, 2, 0)
	leases(launch.Worker, 2, 2)
	lapsed := "its lease in etcd is gone: it died, left, or cannot reach etcd"
	if want := []string{
		"server/0 there", "server/1 there", "worker/0 there", "worker/1 there",
		"server/1#1 gone: server/1 is gone", "server/1 there",
		"server/0#1 gone: server/0 has restarted", "server/0 there",
		"worker/1#1 gone: " + lapsed, "worker/0#1 gone: another process has taken its place", "worker/0 there", "worker/1 there",
	}; !slices.Equal(story, want) {
		t.Errorf("got %q\nwant %q", story, want)
	}

	// A monitor that starts late does not report processes that were gone before, whatever it is
	// told first.
	for _, leasesFirst := range []bool{false, true} {
		p, story = presence{}, nil
		if leasesFirst {
			leases(launch.Server, 1, 1)
		}
		view("server/1 is gone", [][]kintsugi.ServerID{{0}, {0}}, 1, 1)
		leases(launch.Server, 1, 1)
		leases(launch.Server, 1, 0)
		leases(launch.Server, 1, 2)
		if slices.ContainsFunc(story, func(s string) bool { return strings.Contains(s, "gone") }) || story[len(story)-1] != "server/1 there" {
			t.Errorf("leases first: %v: %q", leasesFirst, story)
		}
	}
}

// attended is what a monitor books of a story: arrivals and departures in words, and the record
// with which the next monitor goes on.
type attended struct {
	presence
	run   record.Run
	now   float64
	story []string
}

func at(second float64) time.Time {
	return time.Unix(1, 0).Add(time.Duration(second * float64(time.Second)))
}

func (a *attended) book(gone []departure, came []launch.Part) {
	for _, d := range gone {
		a.story = append(a.story, fmt.Sprintf("%v#%d gone", d.part, d.incarnation))
		a.run.Lives = append(a.run.Lives, record.Life{At: record.At{Seconds: a.now}, Part: d.part.String(), Incarnation: int(d.incarnation)})
	}
	for _, part := range came {
		a.story = append(a.story, fmt.Sprintf("%v#%d there", part, a.there[part].incarnation))
		a.run.Presences = append(a.run.Presences, record.Presence{At: record.At{Seconds: a.now}, Part: part.String(), Incarnation: int(a.there[part].incarnation)})
	}
}

// again returns a monitor that goes on with the record.
func (a *attended) again() *attended {
	return &attended{presence: presenceIn(&a.run, at), run: a.run, now: a.now}
}

func (a *attended) leases(role launch.Role, list ...etcd.Member) {
	a.now++
	a.book(a.members(at(a.now), role, list))
}

func (a *attended) sees(v kintsugi.View) {
	a.now++
	a.book(a.views(at(a.now), v))
}

func (a *attended) tells(t *testing.T, when string, want ...string) {
	t.Helper()
	if !slices.Equal(a.story, want) {
		t.Errorf("%s: got %q\nwant %q", when, a.story, want)
	}
}

func life(index uint32, inc kintsugi.Incarnation) etcd.Member {
	return etcd.Member{Index: index, Incarnation: inc, Value: json.RawMessage("{}")}
}

// A view names a server that holds the only copy of its shard until the server's next life has
// come. A monitor that is started again meanwhile knows that the server has left.
func TestAMonitorThatIsStartedAgainBooksNoDepartureTwice(t *testing.T) {
	view := kintsugi.View{Number: 1, Chains: [][]kintsugi.ServerID{{0}, {1}}, Servers: []kintsugi.Member{{Incarnation: 1}, {Incarnation: 1}}}
	for _, leasesFirst := range []bool{false, true} {
		first := &attended{}
		first.sees(view)
		first.leases(launch.Server, life(0, 1), life(1, 1))
		first.leases(launch.Server, life(0, 1))
		first.tells(t, "the first monitor", "server/0#1 there", "server/1#1 there", "server/1#1 gone")
		second := first.again()
		if leasesFirst {
			second.leases(launch.Server, life(0, 1))
		}
		second.sees(view)
		second.leases(launch.Server, life(0, 1))
		second.tells(t, "the second monitor")
		second.leases(launch.Server, life(0, 1), life(1, 2))
		second.tells(t, "the second monitor, later", "server/1#2 there")
		third := second.again()
		third.leases(launch.Server, life(0, 1))
		third.tells(t, "the third monitor", "server/1#2 gone")

		late := &attended{} // a monitor without a record: the server was gone before
		if leasesFirst {
			late.leases(launch.Server, life(0, 1))
		}
		late.sees(view)
		late.leases(launch.Server, life(0, 1))
		late.tells(t, "a monitor that comes late", "server/0#1 there")
	}
}

// A departure while no monitor runs is booked by the next monitor that goes on with the record.
func TestAMonitorThatIsStartedAgainBooksWhoHasGoneMeanwhile(t *testing.T) {
	both := kintsugi.View{Number: 1, Chains: [][]kintsugi.ServerID{{0, 1}, {1, 0}}, Servers: []kintsugi.Member{{Incarnation: 1}, {Incarnation: 1}}}
	one := kintsugi.View{Number: 2, Chains: [][]kintsugi.ServerID{{0}, {0}}, Servers: both.Servers}
	for _, leasesFirst := range []bool{false, true} {
		a := &attended{}
		a.sees(both)
		a.leases(launch.Server, life(0, 1), life(1, 1))
		a.leases(launch.Worker, life(0, 1), life(1, 1), life(2, 4))
		a = a.again()
		a.leases(launch.Worker, life(1, 2), life(2, 4))
		if leasesFirst {
			a.leases(launch.Server, life(0, 1), life(1, 1)) // its lease has not expired yet
			a.sees(one)
		} else {
			a.sees(one)
			a.leases(launch.Server, life(0, 1), life(1, 1))
		}
		a.leases(launch.Server, life(0, 1))
		a.tells(t, "the second monitor", "worker/0#1 gone", "worker/1#1 gone", "worker/1#2 there", "server/1#1 gone")
	}
}

// A process that etcd has not heard of for a while is booked as gone, since others took it for
// dead. When it is back, its place is filled again, and its end is one more departure.
func TestWhoseLeaseHadLapsedComesBack(t *testing.T) {
	view := kintsugi.View{Number: 1, Chains: [][]kintsugi.ServerID{{0}}, Servers: []kintsugi.Member{{Incarnation: 1}}}
	for _, role := range []launch.Role{launch.Worker, launch.Server} {
		a := &attended{}
		a.leases(role, life(0, 1))
		a.sees(view)
		a.leases(role)
		a.leases(role, life(0, 1))
		a = func() *attended { b := a.again(); b.story = a.story; return b }()
		a.leases(role, life(0, 1))
		a.leases(role)
		name := launch.Part{Role: role}.String() + "#1 "
		a.tells(t, role.String(), name+"there", name+"gone", name+"there", name+"gone")
	}
}

// A list may be older than a view that names a life which the list does not have yet.
func TestALeaseOfThePastSaysNothingOfThePresentLife(t *testing.T) {
	a := &attended{}
	a.leases(launch.Server, life(0, 1))
	a.sees(kintsugi.View{Number: 2, Chains: [][]kintsugi.ServerID{{0}}, Servers: []kintsugi.Member{{Incarnation: 2}}})
	old := life(0, 1)
	old.Value = json.RawMessage(`{"leaving":true}`)
	a.leases(launch.Server, old)
	a.leases(launch.Server)
	if a.there[launch.Part{Role: launch.Server}].leaving {
		t.Error("the second life is about to go; only the first was")
	}
	a.leases(launch.Server, life(0, 2))
	a.leases(launch.Server)
	a.tells(t, "one after the other", "server/0#1 there", "server/0#1 gone", "server/0#2 there", "server/0#2 gone")
}

func TestARunWentOnIfSomebodyHasLivedOnAndHoldsShards(t *testing.T) {
	view := func(chains [][]kintsugi.ServerID, incarnations ...kintsugi.Incarnation) kintsugi.View {
		v := kintsugi.View{Chains: chains}
		for i, inc := range incarnations {
			v.Servers = append(v.Servers, kintsugi.Member{Server: kintsugi.ServerID(i), Incarnation: inc})
		}
		return v
	}
	both := [][]kintsugi.ServerID{{0, 1}, {1, 0}}
	before := *record.ViewOf(view(both, 1, 2))
	for _, c := range []struct {
		now  kintsugi.View
		want bool
	}{
		{view(both, 1, 2), true},
		{view(both, 3, 2), true},
		{view(both, 2, 3), false},                               // all have started anew
		{view([][]kintsugi.ServerID{{0}, {0}}, 2, 2), false},    // the second keeps its place in the list, and is gone
		{view([][]kintsugi.ServerID{{1}, {2}}, 2, 1, 2), false}, // other servers, in more places
	} {
		if got := livedOn(before, c.now); got != c.want {
			t.Errorf("%+v: %v, want %v", c.now, got, c.want)
		}
	}
}

// A conductor tells a monitor that goes on with a record what it remembers of the line: steps
// behind the newest one, and all saves and restored shards since the line began. None may be booked
// twice.
func TestAMonitorThatGoesOnBooksNoEventTwice(t *testing.T) {
	dir, start := t.TempDir(), time.Unix(1_700_000_000, 0)
	rec, err := record.Create(dir, nil, record.Header{Start: start})
	if err != nil {
		t.Fatal(err)
	}
	when := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
	partial := kintsugi.PartialEvent{Line: 2, Step: 20, Shard: 1, Chunks: 2, Age: 3, Oldest: 18}
	saves := []kintsugi.CheckpointEvent{{Line: 2, Step: 24, Took: time.Second}, {Line: 2, Step: 25, Running: true, Shard: 1, Chunks: 1}}
	rec.Record(when(1), &record.View{Number: 1, Line: 1, Heads: []uint32{0, 2}})
	rec.Record(when(2), &record.View{Number: 2, Line: 2, Keeps: 1, Heads: []uint32{0, 1}})
	rec.Record(when(3), record.PartialOf(partial))
	for i := range 10 {
		rec.Record(when(float64(i+4)), &record.Step{Line: 2, Step: uint64(21 + i)})
	}
	for _, e := range saves {
		rec.Record(when(14), record.CheckpointOf(e))
	}
	if _, err := rec.Finish(when(15), "its monitor was ended"); err != nil {
		t.Fatal(err)
	}
	rec, earlier, err := record.Resume(dir, record.Header{Start: when(15)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Finish(when(20), "")
	w := newWatcher(&job.Settings{Servers: 2, Workers: 1, Steps: 100}, nil, rec, when(15))
	w.goOn(earlier)
	if step, told := w.back[partial.Shard]; !told || step != partial.Step {
		t.Errorf("shard 1 came back at step %d (%v)", step, told)
	}
	for _, e := range saves {
		if w.saved(e, when(16)) {
			t.Errorf("%+v is told of as if it were new", e)
		}
	}
	if age, _ := w.costs.Age(when(16)); w.durable != 24 || age != 3*time.Second {
		t.Errorf("the newest checkpoint is of step %d, %v old; want 24 and 3 s", w.durable, age)
	}
	if w.news(kintsugi.StepEvent{Line: 2, Step: 30}) || !w.news(kintsugi.StepEvent{Line: 2, Step: 31}) {
		t.Error("want step 31 to be news, and step 30 not")
	}
	if want := []kintsugi.ServerID{0, 2}; !slices.Equal(w.headed, want) {
		t.Errorf("before the line %v headed the shards, want %v", w.headed, want)
	}
}
