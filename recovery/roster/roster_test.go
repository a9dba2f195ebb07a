package roster

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/script"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata")

// world surrounds a State in a test: etcd, the store of checkpoints, and a clock.
type world struct {
	cfg      Config
	state    *State
	now      time.Time
	revision int64
	fence    kintsugi.Fence
	newest   Checkpoint
	present  map[kintsugi.ServerID]Joined
	silent   map[kintsugi.ServerID]bool // servers that have died and still have leases
	view     *kintsugi.View
	viewedAt int64
}

func newWorld(t testing.TB, cfg Config) *world {
	w := &world{cfg: cfg, now: time.Unix(0, 0), present: make(map[kintsugi.ServerID]Joined), silent: make(map[kintsugi.ServerID]bool)}
	w.restart(t)
	return w
}

// restart replaces the coordinator by one that knows only what etcd holds.
func (w *world) restart(t testing.TB) {
	t.Helper()
	var err error
	if w.state, err = New(w.cfg); err != nil {
		t.Fatal(err)
	}
	w.state.Handle(w.now, Viewed{View: w.view, At: w.viewedAt})
	clear(w.silent) // their leases have expired meanwhile
	for id := range w.present {
		w.state.Handle(w.now, w.present[id])
	}
}

func (w *world) join(id kintsugi.ServerID, n kintsugi.Incarnation, holds kintsugi.Line) {
	w.revision++
	j := Joined{Holds: holds, Member: kintsugi.Member{Server: id, Incarnation: n, Address: fmt.Sprintf("host%d:%d", id, n)}, Since: w.revision}
	if old, ok := w.present[id]; ok {
		j.Since = old.Since // the new life takes the place over without a gap
	}
	w.present[id] = j
	delete(w.silent, id)
	w.state.Handle(w.now, j)
}

func (w *world) die(id kintsugi.ServerID) {
	n := w.present[id].Member.Incarnation
	delete(w.present, id)
	w.silent[id] = true
	w.state.Handle(w.now, Died{Server: id, Incarnation: n})
}

// whole makes a server say that it has caught up in the newest view.
func (w *world) whole(id kintsugi.ServerID) {
	j, ok := w.present[id]
	if !ok || w.view == nil || int(id) >= len(w.view.Servers) || w.view.Servers[id].Incarnation != j.Member.Incarnation {
		return
	}
	j.Whole = w.view.Newest(id)
	w.present[id] = j
	w.state.Handle(w.now, j)
}

func (w *world) leave(id kintsugi.ServerID) {
	w.revision++
	delete(w.present, id)
	delete(w.silent, id)
	w.state.Handle(w.now, Left{Server: id})
}

// decide does what a shell does: it answers the question, publishes the view and reports it.
func (w *world) decide() Decision {
	d := w.state.Decide(w.now)
	if d.Ask {
		w.fence++
		found := Found{Fence: w.fence, FenceOnly: d.FenceOnly}
		if !d.FenceOnly {
			found.Newest = w.newest
		}
		w.state.Handle(w.now, found)
		d = w.state.Decide(w.now)
	}
	if d.View != nil {
		w.revision++
		w.view, w.viewedAt = d.View, w.revision
		w.state.Handle(w.now, Viewed{View: d.View, At: w.revision})
	}
	return d
}

func describe(d Decision, now func(time.Time) string) string {
	var b strings.Builder
	fmt.Fprintln(&b, d.Reason)
	if !d.Again.IsZero() {
		fmt.Fprintf(&b, "decide again at %s\n", now(d.Again))
	}
	if v := d.View; v != nil {
		fmt.Fprintf(&b, "view %d: line %d, fence %d", v.Number, v.Line, v.Fence)
		if v.Restore != "" {
			fmt.Fprintf(&b, ", restore %s", v.Restore)
		}
		if v.Continues {
			fmt.Fprint(&b, ", continues")
		}
		if v.Keeps != 0 {
			fmt.Fprintf(&b, ", keeps what servers have of lines from %d on", v.Keeps)
		}
		if len(v.Lost) > 0 {
			fmt.Fprintf(&b, ", without shards %v", v.Lost)
		}
		fmt.Fprintf(&b, "\n  servers")
		for _, m := range v.Servers {
			fmt.Fprintf(&b, " %d@%d", m.Server, m.Incarnation)
			if m.Since != 0 {
				fmt.Fprintf(&b, " since %d", m.Since)
			}
		}
		fmt.Fprintf(&b, ", chains %v, conductor server/%d\n", v.Chains, v.Conductor)
		for _, p := range v.Places {
			fmt.Fprintf(&b, "  server/%d in the chain of shard %d since %d\n", p.Server, p.Shard, p.Since)
		}
	}
	return b.String()
}

// command carries out one line of a script.
func (w *world) command(t testing.TB, line string) string {
	t.Helper()
	var id kintsugi.ServerID
	var n kintsugi.Incarnation
	var holds kintsugi.Line
	var in string
	scan := func(format string, into ...any) bool {
		got, err := fmt.Sscanf(line, format, into...)
		return err == nil && got == len(into)
	}
	start := time.Unix(0, 0)
	switch {
	case scan("join server/%d incarnation %d holds line %d", &id, &n, &holds):
		w.join(id, n, holds)
	case scan("join server/%d incarnation %d", &id, &n):
		w.join(id, n, 0)
	case scan("leave server/%d", &id):
		w.leave(id)
	case scan("server/%d is leaving", &id):
		j := w.present[id]
		j.Leaving = true
		w.present[id] = j
		w.state.Handle(w.now, j)
	case strings.HasPrefix(line, "server/") && strings.Contains(line, "does not reach"), scan("server/%d reaches everybody", &id):
		w.unreached(t, line)
	case scan("whole server/%d", &id):
		w.whole(id)
	case scan("die server/%d", &id):
		w.die(id)
	case scan("after %s", &in):
		d, err := time.ParseDuration(in)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w.now = w.now.Add(d)
	case scan("checkpoint %s step %d line %d", &w.newest.Manifest, &w.newest.Step, &w.newest.Line):
	case scan("fence %d", &w.fence):
	case strings.HasPrefix(line, "want "):
		n, why, _ := strings.Cut(strings.TrimPrefix(line, "want "), " ")
		replicas, err := strconv.Atoi(n)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w.state.Handle(w.now, Wanted{Replicas: replicas, Why: why})
	case line == "restart":
		w.restart(t)
	case line == "decide":
		return describe(w.decide(), func(at time.Time) string { return at.Sub(start).String() })
	case strings.HasPrefix(line, "run "):
		*w = *newWorld(t, parseConfig(t, line))
	case strings.HasPrefix(line, "coordinator "): // another one, with other settings, for the same run
		w.cfg = parseConfig(t, line)
		w.restart(t)
	default:
		t.Fatalf("unknown command %q", line)
	}
	return ""
}

// parseConfig reads "run servers 2 replicas 1 hold 5s move 30s resume manifest/400 400 3 forgive".
func parseConfig(t testing.TB, line string) Config {
	t.Helper()
	var cfg Config
	words := strings.Fields(line)[1:]
	next := func(into any) {
		if len(words) == 0 {
			t.Fatalf("%q ends too early", line)
		}
		if _, err := fmt.Sscan(words[0], into); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		words = words[1:]
	}
	for len(words) > 0 {
		var key, in string
		next(&key)
		switch key {
		case "servers":
			next(&cfg.Servers)
		case "replicas":
			next(&cfg.Replicas)
		case "hold":
			next(&in)
			cfg.Hold, _ = time.ParseDuration(in)
		case "resume":
			next(&cfg.ResumeFrom.Manifest)
			next(&cfg.ResumeFrom.Step)
			next(&cfg.ResumeFrom.Line)
		case "move":
			next(&in)
			cfg.MoveAfter, _ = time.ParseDuration(in)
		case "partial":
			cfg.Partial = true
		case "next": // the next replica answers for those behind it
			cfg.NextAnswers = true
		case "copies":
			cfg.Copies = true
		case "chooses":
			cfg.Chooses = true
		case "forgive":
			cfg.LapsesForgiven = true
		default:
			t.Fatalf("unknown word %q in %q", key, line)
		}
	}
	return cfg
}

func TestTheStoriesComeTrue(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			var w world
			script.Run(t, path, *update, func(line string) string { return w.command(t, line) })
		})
	}
}

func TestNumbersThatMakeNoSenseAreRefused(t *testing.T) {
	for _, cfg := range []Config{{}, {Servers: -1}, {Servers: 2, Replicas: 3}, {Servers: 2, Replicas: -1}} {
		if _, err := New(cfg); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%+v: %v, want ErrUsage", cfg, err)
		}
	}
}

func TestEveryServerHasTheSameLoadAndEveryShardDifferentServers(t *testing.T) {
	for servers := 1; servers <= 6; servers++ {
		for replicas := 1; replicas <= servers; replicas++ {
			load := make([]int, servers)
			for shard, chain := range chains(servers, replicas) {
				if chain[0] != kintsugi.ServerID(shard) {
					t.Errorf("%d servers, %d replicas: shard %d has its head on server %d", servers, replicas, shard, chain[0])
				}
				if distinct := slices.Compact(slices.Sorted(slices.Values(chain))); len(distinct) != replicas {
					t.Errorf("%d servers, %d replicas: shard %d is on %v", servers, replicas, shard, chain)
				}
				for _, id := range chain {
					load[id]++
				}
			}
			if slices.Min(load) != replicas || slices.Max(load) != replicas {
				t.Errorf("%d servers, %d replicas: load %v", servers, replicas, load)
			}
		}
	}
}

// storm makes random things happen to a world, and calls check after each decision with the view
// before it.
func storm(t *testing.T, seed uint64, check func(w *world, before *kintsugi.View, d Decision), change ...func(*Config)) {
	rng := rand.New(rand.NewPCG(seed, 0))
	cfg := Config{Servers: 1 + rng.IntN(4), LapsesForgiven: rng.IntN(2) == 0, Hold: time.Duration(rng.IntN(3)) * time.Second}
	cfg.Partial = seed%2 == 1
	outside := seed%3 == 0
	cfg.Replicas = 1 + rng.IntN(cfg.Servers)
	for _, f := range change {
		f(&cfg)
	}
	w := newWorld(t, cfg)
	lives := make(map[kintsugi.ServerID]kintsugi.Incarnation)
	for range 200 {
		id := kintsugi.ServerID(rng.IntN(cfg.Servers + 1)) // one place more than there is
		switch rng.IntN(8) {
		case 0, 1, 2:
			lives[id]++
			holds := kintsugi.Line(0)
			if w.view != nil && outside {
				holds = w.view.Line - min(w.view.Line, kintsugi.Line(rng.IntN(2)))
			}
			w.join(id, lives[id], holds)
		case 3:
			if w.revision%2 == 0 {
				w.leave(id)
			} else {
				w.die(id)
			}
		case 4: // away, and back as the same life
			if _, ok := w.present[id]; ok {
				w.leave(id)
				if rng.IntN(2) == 0 {
					w.decide()
				}
				w.join(id, lives[id], 0)
			}
		case 5:
			if w.view != nil {
				w.newest = Checkpoint{Manifest: fmt.Sprintf("m%d", w.revision), Step: w.newest.Step + 1, Line: w.view.Line}
			}
		case 6:
			w.now = w.now.Add(time.Second)
			w.fence += kintsugi.Fence(rng.IntN(3)) // a conductor takes some numbers
		case 7:
			w.restart(t)
		}
		if rng.IntN(3) > 0 {
			w.whole(kintsugi.ServerID(rng.IntN(cfg.Servers)))
		}
		before := w.view
		check(w, before, w.decide())
		if t.Failed() {
			t.Fatalf("replay: seed %d, %+v", seed, cfg)
		}
	}
}

func TestViewsFencesAndLinesGrowAndNameOnlyWhoIsPresent(t *testing.T) {
	views := 0
	for seed := range uint64(400) {
		storm(t, seed/2, func(w *world, before *kintsugi.View, d Decision) {
			if d.Reason == "" || d.Ask {
				t.Errorf("an answered decision asks again, or gives no reason: %+v", d)
			}
			v := d.View
			if v == nil {
				return
			}
			views++
			if before != nil && (v.Number <= before.Number || v.Fence <= before.Fence) {
				t.Errorf("after %+v comes %+v", before, v)
			}
			if v.Fence < w.fence {
				t.Errorf("fence %d, but %+v", w.fence, v)
			}
			if len(v.Servers) != w.cfg.Servers || v.Conductor != v.Chains[0][0] {
				t.Errorf("%+v", v)
			}
			for _, id := range slices.Concat(v.Chains...) {
				m := v.Servers[id]
				m.Since = 0
				if j, ok := w.present[id]; !ok || j.Member != m {
					t.Errorf("view %d names %+v in place %d, present is %+v", v.Number, m, id, j)
				}
			}
			if before != nil && v.Line == before.Line {
				checkGoesOn(t, w.cfg.Replicas, before, v)
				return
			}
			if before != nil && v.Line < before.Line || w.newest.Manifest != "" && (v.Line <= w.newest.Line || v.Restore != w.newest.Manifest) {
				t.Errorf("newest %+v, but %+v", w.newest, v)
			}
			for i, home := range chains(w.cfg.Servers, w.cfg.Replicas) {
				if w.cfg.MoveAfter > 0 {
					break // shards may be anywhere
				}
				if v.Keeps == 0 && !slices.Equal(v.Chains[i], home) || !slices.Equal(slices.Sorted(slices.Values(v.Chains[i])), slices.Sorted(slices.Values(home))) {
					t.Errorf("a line begins with the chains %v", v.Chains)
				}
			}
		}, moving(seed%2))
	}
	if views < 1300 {
		t.Errorf("only %d views in all: the storm is too calm to prove anything", views)
	}
}

// moving returns a function that lets shards move in a storm: a server is waited for for two
// seconds, or for ever.
func moving(moves uint64) func(*Config) {
	return func(cfg *Config) { cfg.MoveAfter = time.Duration(2*moves) * time.Second }
}

// checkGoesOn checks a view on the line of the view before: no shard goes to a server that has
// nothing of it, and no chain is reordered.
func checkGoesOn(t *testing.T, replicas int, before, v *kintsugi.View) {
	lives := func(id kintsugi.ServerID) bool { return v.Servers[id].Incarnation == before.Servers[id].Incarnation }
	same := func(i int, id kintsugi.ServerID) bool { // with one replica: what its server holds outside its process
		return lives(id) || replicas == 1 && before.Chains[i][0] == id
	}
	if v.Restore != before.Restore || v.RestoreStep != before.RestoreStep || v.Keeps != before.Keeps {
		t.Errorf("line %d begins elsewhere: after %+v comes %+v", v.Line, before, v)
	}
	for i, chain := range v.Chains {
		var stay []kintsugi.ServerID
		for _, id := range before.Chains[i] {
			if slices.Contains(chain, id) && same(i, id) {
				stay = append(stay, id)
			}
		}
		if len(stay) == 0 || !slices.Equal(chain[:len(stay)], stay) {
			t.Errorf("shard %d: after chain %v comes %v, of whom %v were there", i, before.Chains[i], chain, stay)
		}
		for _, id := range chain {
			was := slices.Contains(stay, id)
			want := v.Number
			if was = was && lives(id); was {
				want = before.Since(kintsugi.ShardID(i), id)
			} else if slices.Contains(stay, id) {
				want = 0
			}
			lapsed := replicas == 1 && chain[0] != id // this may be why it comes in anew
			if since := v.Since(kintsugi.ShardID(i), id); since != want && !(lapsed && since == v.Number) {
				t.Errorf("view %d: server/%d is in chain %d since view %d, was there: %v", v.Number, id, i, since, was)
			}
		}
	}
}

// The obvious version: the line goes on exactly if each shard has a replica left, and a view is due
// when a server has gone or come. Nobody is waited for.
func TestALineGoesOnAsLongAsEachShardHasAReplicaLeft(t *testing.T) {
	on, over := 0, 0
	for seed := range uint64(300) {
		storm(t, seed, func(w *world, before *kintsugi.View, d Decision) {
			if before == nil || w.cfg.Replicas == 1 {
				return
			}
			lives := func(id kintsugi.ServerID) bool {
				j, ok := w.present[id]
				return ok && j.Member.Incarnation == before.Servers[id].Incarnation
			}
			whole := func(id kintsugi.ServerID) bool {
				since := before.Servers[id].Since
				return lives(id) && (since == 0 || w.present[id].Whole == since)
			}
			left, due := true, false
			for _, chain := range before.Chains {
				left = left && (slices.ContainsFunc(chain, whole) || lives(chain[0]))
			}
			for id := range kintsugi.ServerID(w.cfg.Servers) {
				in := slices.Contains(slices.Concat(before.Chains...), id)
				_, present := w.present[id]
				due = due || in != (present && lives(id)) && (in || present) || !in && present
			}
			switch {
			case left && due != (d.View != nil):
				t.Errorf("after %+v: due %v, but %+v", before, due, d)
			case left && due && d.View.Line != before.Line:
				t.Errorf("after %+v comes %+v", before, d.View)
			case left && due:
				on++
			case !left && d.View != nil && d.View.Line <= before.Line:
				t.Errorf("nobody is left of a shard of %+v, but %+v", before, d.View)
			case !left:
				over++
			}
		})
	}
	if on < 1000 || over < 100 {
		t.Errorf("lines went on %d times and ended %d times: the storm proves nothing", on, over)
	}
}

// The obvious version: a view is due when all servers are there and one of them is not as the last
// view has it.
func TestAViewIsPutExactlyWhenEverybodyIsThereAndSomebodyIsNotAsItSays(t *testing.T) {
	for seed := range uint64(300) {
		storm(t, seed, func(w *world, before *kintsugi.View, d Decision) {
			if w.cfg.Hold > 0 || w.cfg.Replicas > 1 {
				return // these may also wait, or go on
			}
			due := before == nil
			for id := range kintsugi.ServerID(w.cfg.Servers) {
				j, ok := w.present[id]
				if !ok {
					if d.View != nil {
						t.Errorf("a view without server/%d", id)
					}
					return
				}
				if before != nil {
					due = due || before.Servers[id].Incarnation != j.Member.Incarnation
				}
			}
			if due && d.View == nil {
				t.Errorf("no view although one is due: %s", d.Reason)
			}
			if !due && d.View != nil && w.cfg.LapsesForgiven {
				t.Errorf("a view although nobody was lost: %s", d.Reason)
			}
		})
	}
}

// With copies, a view begins a line exactly if a head is gone, and the lost shards are those whose
// heads are gone. The next head has said that it has a copy.
func TestWithCopiesALineEndsWithAHead(t *testing.T) {
	on, back, over := 0, 0, 0
	for seed := range uint64(300) {
		storm(t, 2*seed, func(w *world, before *kintsugi.View, d Decision) {
			v := d.View
			if v == nil || before == nil || w.cfg.Replicas == 1 {
				return
			}
			var lost []kintsugi.ShardID
			left := true
			for i, chain := range before.Chains {
				if !w.has(before, i, chain[0]) {
					lost = append(lost, kintsugi.ShardID(i))
				}
				left = left && slices.ContainsFunc(chain, func(id kintsugi.ServerID) bool { return w.has(before, i, id) })
			}
			switch {
			case !left:
				if over++; v.Continues || v.Keeps != 0 {
					t.Errorf("nobody has a copy of a shard of %+v, but %+v", before, v)
				}
			case len(lost) == 0:
				if on++; v.Line != before.Line || !v.Continues {
					t.Errorf("every head is there: after %+v comes %+v", before, v)
				}
			default:
				back++
				if v.Continues || v.Line != before.Line+1 || v.Losses != before.Losses+1 || v.Keeps == 0 || v.Keeps > before.Line || !slices.Equal(v.Lost, lost) {
					t.Errorf("without the heads of %v: after %+v comes %+v", lost, before, v)
				}
			}
			for i, chain := range v.Chains {
				if left && !w.has(before, i, chain[0]) || left && !slices.Contains(lost, kintsugi.ShardID(i)) && chain[0] != before.Chains[i][0] {
					t.Errorf("after %+v the head of shard %d is server/%d: %+v", before, i, chain[0], v)
				}
			}
		}, func(cfg *Config) { cfg.Copies, cfg.Partial = true, false })
	}
	if on < 100 || back < 100 || over < 100 {
		t.Errorf("lines went on %d times, back to copies %d times and ended %d times: the storm proves nothing", on, back, over)
	}
}

// has is the obvious version: a living server has what it had, if it heads a chain or has said so.
// With one replica, a new life has what it found.
func (w *world) has(before *kintsugi.View, shard int, id kintsugi.ServerID) bool {
	j, ok := w.present[id]
	m := before.Servers[id]
	switch {
	case !ok || !slices.Contains(before.Chains[shard], id):
		return false
	case j.Member.Incarnation == m.Incarnation:
		since := before.Since(kintsugi.ShardID(shard), id)
		return since == 0 || j.Whole >= since || before.Chains[shard][0] == id
	}
	first := before.Line
	if before.Keeps != 0 {
		first = before.Keeps
	}
	if before.From != nil { // older states were lost
		first = max(first, before.From[shard])
	}
	own := before.Chains[shard][0] == id && int(id) == shard
	return w.cfg.Replicas == 1 && own && j.Holds >= first && j.Holds <= before.Line
}

// A line keeps an earlier one exactly if somebody still has a shard, and then it keeps all lines
// since the one that restored everything. A shard is lost exactly if nobody has it, and otherwise
// its head has it.
func TestALineKeepsTheOneBeforeWhereAShardOutlivesIt(t *testing.T) {
	keeping, again, chained := 0, 0, 0
	for seed := range uint64(400) {
		storm(t, seed/2, func(w *world, before *kintsugi.View, d Decision) {
			v := d.View
			if v == nil {
				return
			}
			if v.Continues {
				if v.Losses != before.Losses {
					t.Errorf("after %+v comes %+v: a line that goes on has lost nothing", before, v)
				}
				return // TestALineGoesOnAsLongAsEachShardHasAReplicaLeft and TestALineGoesOnWhereEveryNewLifeHoldsItsState check that
			}
			want := kintsugi.Line(0)
			var lost []kintsugi.ShardID
			if before != nil && w.cfg.Partial {
				for i, chain := range before.Chains {
					if !slices.ContainsFunc(chain, func(id kintsugi.ServerID) bool { return w.has(before, i, id) }) {
						lost = append(lost, kintsugi.ShardID(i))
					} else if !w.has(before, i, v.Chains[i][0]) {
						t.Errorf("after %+v the head of shard %d has nothing of it: %+v", before, i, v)
					}
				}
				if len(lost) < len(before.Chains) {
					if want = before.Line; before.Keeps != 0 {
						want = before.Keeps
						again++
					}
					if keeping++; w.cfg.Replicas > 1 {
						chained++
					}
				} else {
					lost = nil
				}
			}
			losses := int(v.Line) - 1
			if before != nil {
				if losses = before.Losses; want == 0 || len(lost) > 0 {
					losses++
				}
			}
			if v.Losses != losses {
				t.Errorf("after %+v comes %+v, with %d losses, want %d", before, v, v.Losses, losses)
			}
			if v.Keeps != want || !slices.Equal(v.Lost, lost) {
				t.Errorf("after %+v comes %+v, which keeps line %d without %v, want %d without %v", before, v, v.Keeps, v.Lost, want, lost)
			}
		}, moving(seed%2))
	}
	if keeping < 100 || again < 100 || chained < 100 {
		t.Errorf("only %d lines keep one, %d more than one, %d with chains: the storm proves nothing", keeping, again, chained)
	}
}

// A line goes on exactly if each server with a new process holds the line's state outside of it.
func TestALineGoesOnWhereEveryNewLifeHoldsItsState(t *testing.T) {
	on := 0
	for seed := range uint64(300) {
		storm(t, seed, func(w *world, before *kintsugi.View, d Decision) {
			v := d.View
			if v == nil || before == nil || w.cfg.Replicas > 1 {
				return
			}
			replaced, without := 0, 0
			for i, m := range before.Servers {
				if v.Servers[i].Incarnation != m.Incarnation {
					replaced++
					if w.present[kintsugi.ServerID(i)].Holds != before.Line {
						without++
					}
				}
			}
			want := replaced > 0 && without == 0
			if v.Continues != want || want && (v.Line != before.Line || v.Keeps != before.Keeps || v.Restore != before.Restore || v.RestoreStep != before.RestoreStep) {
				t.Errorf("after %+v comes %+v", before, v)
			}
			if want {
				on++
			}
		})
	}
	if on < 100 {
		t.Errorf("only %d lines go on: the storm proves nothing", on)
	}
}

// An answer without a checkpoint does not begin a line: it would begin where the line before began,
// and lose its steps.
func TestAnAnswerWithoutACheckpointBeginsNoLine(t *testing.T) {
	w := newWorld(t, Config{Servers: 1})
	w.join(0, 1, 0)
	w.decide()
	w.join(0, 2, 1)
	if d := w.state.Decide(w.now); !d.Ask || !d.FenceOnly {
		t.Fatalf("%+v", d)
	}
	w.join(0, 3, 0)
	w.state.Handle(w.now, Found{Fence: 9, FenceOnly: true})
	if d := w.state.Decide(w.now); !d.Ask || d.FenceOnly || d.View != nil {
		t.Errorf("%+v", d)
	}
}

func TestTheSameEventsGiveTheSameDecisions(t *testing.T) {
	for seed := range uint64(50) {
		var first, second []Decision
		storm(t, seed, func(_ *world, _ *kintsugi.View, d Decision) { first = append(first, d) })
		storm(t, seed, func(_ *world, _ *kintsugi.View, d Decision) { second = append(second, d) })
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("seed %d: two runs differ", seed)
		}
	}
}

func TestAnAnswerCountsForOneDecisionOnly(t *testing.T) {
	w := newWorld(t, Config{Servers: 2})
	w.join(0, 1, 0)
	w.state.Handle(w.now, Found{Newest: Checkpoint{Manifest: "old", Step: 1, Line: 1}, Fence: 1})
	w.state.Decide(w.now) // waits for server/1
	w.join(1, 1, 0)
	if d := w.state.Decide(w.now); !d.Ask {
		t.Errorf("decided on an old answer: %+v", d)
	}
}
