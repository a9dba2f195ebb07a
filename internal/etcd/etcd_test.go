package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// damagedFolder names a folder whose etcd a child process of the test is to start. What a start on
// damaged data leaves behind ends with that process.
const damagedFolder = "KINTSUGI_TEST_DAMAGED_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(damagedFolder); dir != "" {
		_, err := Embed(context.Background(), dir, Options{UnsafeNoFsync: true})
		fmt.Println("embed:", err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// limit bounds every test. What is waited for comes within milliseconds, or within a few seconds if
// a lease must expire.
const limit = 30 * time.Second

// bench is an etcd that a test may kill and start again, with its folder.
type bench struct {
	*Embedded
	dir string
	tls *mtls.Credentials // nil: plain TCP
}

func startEtcd(t *testing.T) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir()}
	b.start(t)
	t.Cleanup(func() { b.Close() })
	return b
}

func (b *bench) start(t *testing.T) {
	t.Helper()
	e, err := Embed(within(t), b.dir, Options{UnsafeNoFsync: true, TLS: b.tls})
	if err != nil {
		t.Fatal(err)
	}
	b.Embedded = e
}

func (b *bench) dial(t *testing.T) *Client {
	t.Helper()
	c, err := Dial(within(t), []string{b.Endpoint()}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// await receives until want accepts a value. It fails when the channel is closed or the time is
// over before.
func await[T any](t *testing.T, ch <-chan T, what string, want func(T) bool) T {
	t.Helper()
	var newest any = "nothing"
	timeout := time.After(limit)
	for {
		select {
		case v, ok := <-ch:
			if !ok {
				t.Fatalf("waiting for %s: the channel was closed; newest was %+v", what, newest)
			}
			if want(v) {
				return v
			}
			newest = v
		case <-timeout:
			t.Fatalf("waited %v for %s; newest was %+v", limit, what, newest)
		}
	}
}

func register(t *testing.T, c *Client, k Kind, index uint32, ttl time.Duration) *Registration {
	t.Helper()
	r, err := c.Register(t.Context(), k, index, map[string]string{"address": fmt.Sprintf("host%d:1", index)}, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// present returns a function for await that accepts exactly these "kind/index@incarnation".
func present(want ...string) func([]Member) bool {
	return func(ms []Member) bool { return slices.Equal(names(ms), want) }
}

func names(ms []Member) []string {
	var got []string
	for _, m := range ms {
		got = append(got, fmt.Sprintf("%v@%d", m, m.Incarnation))
	}
	return got
}

func TestAnEmbeddedEtcdComesBackAtTheSameEndpointWithItsKeys(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	if f, err := c.NextFence(within(t), 41); err != nil || f != 42 {
		t.Fatalf("fence %d, %v; want 42", f, err)
	}
	first := b.Endpoint()
	b.Close()
	b.start(t)
	if b.Endpoint() != first {
		t.Errorf("endpoint %s, was %s", b.Endpoint(), first)
	}
	if f, err := c.NextFence(within(t), 0); err != nil || f != 43 {
		t.Errorf("fence %d, %v; want 43", f, err)
	}
}

// sized returns the bytes of all files below a folder.
func sized(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The folder of each run has an etcd, which contains some kilobytes.
func TestAnEmbeddedEtcdTakesLittleOfTheDisk(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	if n := sized(t, b.dir); n > 4<<20 {
		t.Errorf("it takes %d bytes; want at most 4 MiB", n)
	}
	for i := range 60 { // enough for several files of its log
		if _, err := c.etcd.Put(within(t), fmt.Sprint("filler/", i%3), strings.Repeat("x", 100_000)); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	b.start(t)
	r, err := b.dial(t).etcd.Get(within(t), "filler/2")
	if err != nil || len(r.Kvs) != 1 || len(r.Kvs[0].Value) != 100_000 || r.Kvs[0].Version != 20 {
		t.Errorf("it came back with other keys: %v", err)
	}
}

func TestAnEmbeddedEtcdTakesAnotherPortWhenItsOwnIsTaken(t *testing.T) {
	b := startEtcd(t)
	b.Close()
	squatter, err := net.Listen("tcp", b.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	first := b.Endpoint()
	b.start(t)
	if b.Endpoint() == first {
		t.Errorf("endpoint %s belongs to somebody else", first)
	}
	b.dial(t)

	_, port, _ := net.SplitHostPort(first)
	var taken int
	fmt.Sscan(port, &taken)
	if e, err := Embed(within(t), t.TempDir(), Options{Port: taken, UnsafeNoFsync: true}); err == nil {
		e.Close()
		t.Errorf("a port that was asked for and is taken was replaced by %s", e.Endpoint())
	}
}

func TestAFolderThatCannotBeUsedIsAnError(t *testing.T) {
	if e, err := Embed(within(t), "/dev/null/etcd", Options{}); err == nil {
		e.Close()
		t.Error("started in /dev/null")
	}
}

func TestDialingNobodyNamesTheEndpointWithinTheTimeout(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and never answers, which is worse than refusing
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	endpoint := nobody.Addr().String()
	begin := time.Now()
	_, err = Dial(t.Context(), []string{endpoint}, "test", WithTimeout(200*time.Millisecond))
	if err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("error %v does not name %s", err, endpoint)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestARunNameThatCouldReachIntoAnotherRunIsRefused(t *testing.T) {
	for _, name := range []string{"", "a/b", "..", "-x", "a b", strings.Repeat("a", 64)} {
		if _, err := Dial(t.Context(), []string{"127.0.0.1:1"}, name); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("run name %q: %v, want ErrUsage", name, err)
		}
	}
	if _, err := Dial(t.Context(), nil, "run"); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("no endpoints: %v, want ErrUsage", err)
	}
}

func TestRunsDoNotSeeOneAnother(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	other, err := Dial(within(t), []string{b.Endpoint()}, "test2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	register(t, c, Server, 0, time.Minute)
	if ms, err := other.Members(within(t), Server); err != nil || len(ms) != 0 {
		t.Errorf("run test2 sees %v, %v", ms, err)
	}
}

func TestEtcdKnowsTheNamesOfItsRuns(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	if names, err := c.Runs(within(t)); err != nil || len(names) != 0 {
		t.Errorf("an empty etcd knows %v, %v", names, err)
	}
	want := []string{"a", "a-b", "a.b", "a0", "ab"}
	for _, name := range want {
		run, err := Dial(within(t), []string{b.Endpoint()}, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { run.Close() })
		register(t, run, Server, 0, time.Minute)
		register(t, run, Server, 1, time.Minute)
	}
	if names, err := c.Runs(within(t)); err != nil || !slices.Equal(names, want) {
		t.Errorf("etcd knows the runs %v, %v; want %v", names, err, want)
	}
}

func TestARunHasOneIDThatNoOtherHas(t *testing.T) {
	b := startEtcd(t)
	ids := make(chan string)
	for range 8 {
		c := b.dial(t)
		go func() {
			id, err := c.ID(within(t))
			if err != nil {
				t.Error(err)
			}
			ids <- id
		}()
	}
	id := <-ids
	for range 7 {
		if other := <-ids; other != id || id == "" {
			t.Errorf("the run is %q and %q", id, other)
		}
	}
	other, err := Dial(within(t), []string{b.Endpoint()}, "test2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	if same, err := other.ID(within(t)); err != nil || same == id {
		t.Errorf("another run is %q too, %v", same, err)
	}
}

func TestEachLifeOfAPlaceHasALargerIncarnationThanTheOneBefore(t *testing.T) {
	c := startEtcd(t).dial(t)
	var before kintsugi.Incarnation
	for range 3 {
		r := register(t, c, Worker, 4, time.Minute)
		if r.Incarnation() <= before {
			t.Errorf("incarnation %d follows %d", r.Incarnation(), before)
		}
		before = r.Incarnation()
		if err := r.Close(within(t)); err != nil {
			t.Fatal(err)
		}
		if ms, _ := c.Members(within(t), Worker); len(ms) != 0 {
			t.Errorf("%v is there after Close", ms)
		}
	}
}

func TestALaterLifeTakesThePlaceAtOnceAndTheEarlierOneLearnsOfIt(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	members := c.WatchMembers(within(t), Server)
	old := register(t, c, Server, 1, time.Minute)
	await(t, members, "the first life", present("server/1@1"))
	register(t, b.dial(t), Server, 1, time.Minute)
	await(t, members, "the second life", present("server/1@2"))
	await(t, old.Changes(), "superseded", func(s Status) bool { return s.State == Superseded })
	if err := old.Close(within(t)); err != nil {
		t.Error(err)
	}
	if ms, _ := c.Members(within(t), Server); !present("server/1@2")(ms) {
		t.Errorf("after the ghost's Close: %v", names(ms))
	}
}

func TestConcurrentRegistrationsOfOnePlaceGetDifferentIncarnations(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	const n = 8
	got := make([]kintsugi.Incarnation, n)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			r, err := c.Register(t.Context(), Worker, 0, nil, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = r.Incarnation()
			r.Close(context.Background())
		})
	}
	all.Wait()
	slices.Sort(got)
	if len(slices.Compact(got)) != n {
		t.Errorf("incarnations %v", got)
	}
}

func TestADeadProcessLeavesItsPlaceAfterItsLease(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	c := b.dial(t)
	dying, err := Dial(within(t), []string{b.Endpoint()}, "test")
	if err != nil {
		t.Fatal(err)
	}
	members := c.WatchMembers(within(t), Server)
	ctx, kill := context.WithCancel(t.Context())
	if _, err := dying.Register(ctx, Server, 0, nil, time.Second); err != nil {
		t.Fatal(err)
	}
	await(t, members, "its place filled", present("server/0@1"))
	begin := time.Now()
	kill() // without Close, so that etcd is not told
	dying.Close()
	await(t, members, "its place empty", present())
	t.Logf("a lease of 1s lapsed after %v", time.Since(begin).Round(time.Millisecond))
}

func TestARegistrationSurvivesARestartOfEtcdWithoutALapse(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	c := b.dial(t)
	members := c.WatchMembers(within(t), Server)
	r := register(t, c, Server, 0, 2*time.Second)
	since := await(t, members, "its place filled", present("server/0@1"))[0].Since
	b.Close()
	b.start(t)
	// Once etcd is back, nothing may happen for longer than the lease lasts. Only waiting can show
	// that.
	if testing.Short() {
		t.Skip("it waits for longer than a lease; run it without -short")
	}
	if _, err := c.NextFence(within(t), 0); err != nil {
		t.Fatal(err)
	}
	later := time.After(3 * time.Second)
	for open := true; open; {
		select {
		case ms := <-members:
			if !present("server/0@1")(ms) || ms[0].Since != since {
				t.Errorf("members became %v", ms)
			}
		case s := <-r.Changes():
			if s != (Status{State: Held}) {
				t.Errorf("status became %+v", s)
			}
		case <-later:
			open = false
		}
	}
}

func TestARegistrationWhoseLeaseIsLostTakesUpItsPlaceAsTheSameLife(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	c := b.dial(t)
	members := c.WatchMembers(within(t), Server)
	r := register(t, c, Server, 0, time.Second)
	before := await(t, members, "its place filled", present("server/0@1"))
	// If the lease is revoked by hand, everybody sees what they see when it expires.
	leases, err := c.etcd.Leases(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases {
		if _, err := c.etcd.Revoke(within(t), l.ID); err != nil {
			t.Fatal(err)
		}
	}
	await(t, r.Changes(), "a lapse", func(s Status) bool { return s == Status{State: Held, Lapses: 1} })
	after := await(t, members, "its place filled again", func(ms []Member) bool {
		return present("server/0@1")(ms) && ms[0].Since != before[0].Since
	})
	if after[0].Since <= before[0].Since || r.Incarnation() != 1 {
		t.Errorf("incarnation %d since revision %d, was since %d", r.Incarnation(), after[0].Since, before[0].Since)
	}
}

// What a process says later about itself is seen under the same life. It survives the expiry of a
// lease, and nothing can be said for a place that a later life has.
func TestARegistrationTellsMoreOfItself(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	members := c.WatchMembers(within(t), Server)
	r := register(t, c, Server, 0, time.Second)
	before := await(t, members, "its place filled", present("server/0@1"))
	if err := r.Tell(within(t), "more"); err != nil {
		t.Fatal(err)
	}
	said := func(text string) func([]Member) bool {
		return func(ms []Member) bool { return len(ms) == 1 && string(ms[0].Value) == text }
	}
	after := await(t, members, "what it said", said(`"more"`))
	if after[0].Since != before[0].Since || after[0].Incarnation != before[0].Incarnation {
		t.Errorf("%+v, was %+v", after[0], before[0])
	}
	if _, err := c.etcd.Revoke(within(t), r.lease); err != nil {
		t.Fatal(err)
	}
	await(t, members, "its place filled again", func(ms []Member) bool { return said(`"more"`)(ms) && ms[0].Since != before[0].Since })
	later := register(t, c, Server, 0, time.Minute)
	if err := r.Tell(within(t), "of the past"); err != nil {
		t.Fatal(err)
	}
	if err := later.Tell(within(t), "of now"); err != nil {
		t.Fatal(err)
	}
	await(t, members, "what the later life said", said(`"of now"`))
}

func TestARegistrationIsSilentDuringAnOutageAndHeldAfterIt(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	r := register(t, b.dial(t), Worker, 0, time.Second)
	b.Close()
	await(t, r.Changes(), "silence", func(s Status) bool { return s.State == Silent })
	b.start(t)
	await(t, r.Changes(), "the place held", func(s Status) bool { return s.State == Held })
	if ms, err := b.dial(t).Members(within(t), Worker); err != nil || !present("worker/0@1")(ms) {
		t.Errorf("members %v, %v", names(ms), err)
	}
}

func TestClosingDuringAnOutageEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	r := register(t, b.dial(t), Worker, 0, time.Minute)
	b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); err == nil {
		t.Error("closed without etcd")
	}
}

func view(number kintsugi.ViewNumber, fence kintsugi.Fence) kintsugi.View {
	return kintsugi.View{Number: number, Line: 1, Fence: fence, Reason: "a test"}
}

func TestAViewIsReplacedOnlyByWhoKnowsItAndUnderALargerFence(t *testing.T) {
	c := startEtcd(t).dial(t)
	ctx := within(t)
	put := func(previous kintsugi.ViewNumber, v kintsugi.View, want error) {
		t.Helper()
		if _, err := c.PutView(ctx, previous, v); !errors.Is(err, want) {
			t.Errorf("view %d after %d under fence %d: %v, want %v", v.Number, previous, v.Fence, err, want)
		}
	}
	if v, rev, err := c.View(ctx); v != nil || rev != 0 || err != nil {
		t.Errorf("before the first view: %v, %d, %v", v, rev, err)
	}
	put(1, view(2, 9), kintsugi.ErrStaleView)
	put(0, view(1, 5), nil)
	put(0, view(2, 6), kintsugi.ErrStaleView)
	if f, err := c.NextFence(ctx, 0); err != nil || f != 6 {
		t.Errorf("fence %d, %v; want 6: the view has taken 5", f, err)
	}
	put(1, view(2, 5), kintsugi.ErrFenced)
	put(1, view(2, 6), nil) // the number that was given out
	if v, _, err := c.View(ctx); err != nil || v.Number != 2 || v.Fence != 6 {
		t.Errorf("view %+v, %v", v, err)
	}
}

// The conductor of a view decides under a larger fence than all conductors of earlier views,
// however late those ask.
func TestNobodyTakesAFenceForAViewThatIsOver(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	ctx := within(t)
	first, second := view(1, 5), view(2, 6)
	if _, err := c.ConductorFence(ctx, first); !errors.Is(err, kintsugi.ErrStaleView) {
		t.Errorf("before the first view: %v", err)
	}
	if _, err := c.PutView(ctx, 0, first); err != nil {
		t.Fatal(err)
	}
	if f, err := c.ConductorFence(ctx, first); err != nil || f != 6 {
		t.Errorf("fence %d, %v; want 6: the view has taken 5", f, err)
	}
	second.Fence = 7
	if _, err := c.PutView(ctx, 1, second); err != nil {
		t.Fatal(err)
	}
	if f, err := c.ConductorFence(ctx, first); !errors.Is(err, kintsugi.ErrStaleView) {
		t.Errorf("fence %d, %v for a view that is over", f, err)
	}
	if f, err := c.ConductorFence(ctx, second); err != nil || f != 8 {
		t.Errorf("fence %d, %v; want 8", f, err)
	}
	// Views are published while fences are asked for. All fences of a view are smaller than those
	// of the next.
	var mu sync.Mutex
	largest, smallest := make(map[kintsugi.ViewNumber]kintsugi.Fence), make(map[kintsugi.ViewNumber]kintsugi.Fence)
	var all sync.WaitGroup
	newest := second
	for n := kintsugi.ViewNumber(3); n < 12; n++ {
		old := newest
		for range 2 {
			all.Go(func() {
				f, err := c.ConductorFence(ctx, old)
				if err != nil {
					if !errors.Is(err, kintsugi.ErrStaleView) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				largest[old.Number] = max(largest[old.Number], f)
				if s := smallest[old.Number]; s == 0 || f < s {
					smallest[old.Number] = f
				}
			})
		}
		for {
			f, err := c.NextFence(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			newest = view(n, f)
			if _, err = c.PutView(ctx, n-1, newest); err == nil {
				break
			}
			if !errors.Is(err, kintsugi.ErrFenced) {
				t.Fatal(err)
			}
		}
	}
	all.Wait()
	for n, f := range largest {
		for m, g := range smallest {
			if m > n && g <= f {
				t.Errorf("view %d has fence %d, view %d before it %d", m, g, n, f)
			}
		}
	}
}

func TestFencesGrowWhoeverTakesThem(t *testing.T) {
	b := startEtcd(t)
	clients := []*Client{b.dial(t), b.dial(t)}
	const each = 20
	got := make([][]kintsugi.Fence, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for n := range each {
				f, err := c.NextFence(t.Context(), kintsugi.Fence(3*n))
				if err != nil {
					t.Error(err)
				}
				got[i] = append(got[i], f)
			}
		})
	}
	all.Wait()
	for i, fences := range got {
		for n, f := range fences {
			if n > 0 && f <= fences[n-1] || f <= kintsugi.Fence(3*n) {
				t.Errorf("client %d: fence %d at %d, after %v", i, f, n, fences[:n])
			}
		}
	}
	everyone := slices.Sorted(slices.Values(slices.Concat(got...)))
	if len(slices.Compact(everyone)) != each*len(clients) {
		t.Errorf("a fence was handed out twice: %v", got)
	}
}

func TestAViewWatcherSeesTheCurrentViewFirstAndNeverAnOlderOne(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	ctx := within(t)
	if _, err := c.PutView(ctx, 0, view(3, 1)); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	views := c.WatchView(watching)
	if v := await(t, views, "the current view", func(kintsugi.View) bool { return true }); v.Number != 3 {
		t.Errorf("first view %d, want 3", v.Number)
	}
	// A user restores an old backup, or writes nonsense.
	old, _ := json.Marshal(view(2, 1))
	for _, bad := range []string{string(old), "not a view"} {
		if _, err := c.etcd.Put(ctx, c.prefix+viewKey, bad); err != nil {
			t.Fatal(err)
		}
	}
	current, _ := json.Marshal(view(4, 2))
	if _, err := c.etcd.Put(ctx, c.prefix+viewKey, string(current)); err != nil {
		t.Fatal(err)
	}
	if v := await(t, views, "view 4", func(kintsugi.View) bool { return true }); v.Number != 4 {
		t.Errorf("view %d after view 3, want 4", v.Number)
	}
	stop()
	for v := range views {
		t.Errorf("view %d after the end", v.Number)
	}
}
