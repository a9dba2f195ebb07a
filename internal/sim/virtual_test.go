package sim

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

var (
	seedFlag  = flag.Int64("seed", -1, "replay this seed, verbosely")
	stepsFlag = flag.Uint64("steps", 0, "steps of each simulated run; 0: as the seed draws")
	seedsFlag = flag.Uint64("seeds", 0, "how many seeds TestSoak and the storms run")
	fromFlag  = flag.Uint64("from", 1_000_000, "the first seed of TestSoak")
	soakFlag  = flag.String("result", "", "a file to which TestSoak adds its result")
)

func steps() kintsugi.Step { return kintsugi.Step(*stepsFlag) }

// seeds returns how many seeds a storm runs: the number of -seeds if given, else short with -short,
// else plain.
func seeds(plain, short uint64) uint64 {
	switch {
	case *seedsFlag > 0:
		return *seedsFlag
	case testing.Short():
		return short
	}
	return plain
}

// Whatever goes wrong, no promise is broken, and when nothing more goes wrong, the run ends.
func TestNoSeedBreaksAPromise(t *testing.T) {
	race.Skip(t)
	for seed := range seeds(150, 100) {
		if _, err := Run(Draw(seed, steps())); err != nil {
			t.Error(err)
		}
	}
}

// Long runs with every fault break no promise.
func TestNoLongRunUnderAllFaultsBreaksAPromise(t *testing.T) {
	race.Skip(t)
	for i := range seeds(100, 25) {
		if _, err := Run(Draw(EveryFault+i, 200)); err != nil {
			t.Error(err)
		}
	}
}

// Seeds that once failed are in testdata/seeds.txt, with what they found.
func TestSeedsThatOnceFailedStayWell(t *testing.T) {
	race.Skip(t)
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var seed uint64
		var steps kintsugi.Step
		if _, err := fmt.Sscan(line, &seed, &steps); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if _, err := Run(Draw(seed, steps)); err != nil {
			t.Errorf("%s\n%v", line, err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestReplay replays a seed and shows its events: make sim SEED=… STEPS=… Without a seed it replays
// seed 0 and shows none.
func TestReplay(t *testing.T) {
	cfg := Draw(uint64(max(0, *seedFlag)), steps())
	if *seedFlag >= 0 {
		cfg.Trace = os.Stdout
	}
	fmt.Printf("seed %d: %v\n", cfg.Seed, cfg)
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("well: %d lines, %d steps on the last, %v of virtual time, %d events, faults %v\n", r.Lines, len(r.Steps), r.Virtual, r.Events, r.Faults)
}

// A seed is only useful if it gives the same run again.
func TestTheSameSeedGivesTheSameTrace(t *testing.T) {
	race.Skip(t)
	for seed := range uint64(20) {
		var a, b bytes.Buffer
		for _, out := range []*bytes.Buffer{&a, &b} {
			cfg := Draw(seed, steps())
			cfg.Trace = out
			if _, err := Run(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if a.Len() == 0 || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("two runs of seed %d differ: %s", seed, firstDifference(a.String(), b.String()))
		}
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d is\n%s\nand\n%s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d lines and %d lines", len(x), len(y))
}

// Every step counts every worker, so a network that fails and processes that stand still cost time
// and do not change a bit, and neither does the number of servers. An undisturbed run says what the
// bits must be.
func TestTheNetworkDoesNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	for seed := range uint64(60) {
		cfg := Draw(seed, steps())
		cfg.Consistency = agg.Config{Lead: kintsugi.Infinite}
		cfg.LeaveGrace, cfg.StartGrace, cfg.LapsesForgiven = time.Hour, time.Hour, true
		cfg.Faults, cfg.StopAfter, cfg.Replicas = 0, 0, 1 // a server of chains that stands still may be taken for dead
		calm, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, servers := range []int{cfg.Servers, 1 + cfg.Servers%4} {
			stormy := cfg
			stormy.Servers, stormy.Faults = servers, NetworkFaults
			got, err := Run(stormy)
			if err != nil {
				t.Fatal(err)
			}
			if got.Lines != 1 {
				t.Fatalf("seed %d: the network alone starts %d lines", seed, got.Lines)
			}
			if !slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params) {
				t.Errorf("seed %d with %d servers: faults of the network change the model", seed, servers)
			}
		}
	}
}

// Servers that find their shards outside their processes cost time as well, and do not change a
// bit, whatever else the network does. No line ends.
func TestServersThatFindTheirStateDoNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	found := 0
	for seed := range uint64(120) {
		cfg := Draw(seed, steps())
		cfg.Consistency = agg.Config{Lead: kintsugi.Infinite}
		cfg.LeaveGrace, cfg.StartGrace, cfg.RejoinGrace, cfg.LapsesForgiven = time.Hour, time.Hour, time.Hour, true
		cfg.Faults, cfg.StopAfter, cfg.Outside, cfg.Replicas, cfg.Partial, cfg.Hold = 0, 0, true, 1, false, 0
		calm, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Faults = NetworkFaults | 1<<KillServer | 1<<KillCoordinator
		got, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		found += got.Recalled
		if got.Lines > 1 && got.Base > 0 || !slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params) {
			t.Errorf("seed %d: killed servers change the model, on line %d", seed, got.Lines)
		}
	}
	if found < 200 {
		t.Errorf("shards were found %d times: that proves nothing", found)
	}
}

// sameGradients compares what two steps of two runs count. Incarnations differ between runs and are
// ignored.
func sameGradients(a, b kintsugi.Commit) bool {
	return a.Step == b.Step && slices.EqualFunc(a.Counted, b.Counted, func(v, w kintsugi.Weighted) bool {
		return v.Weight == w.Weight && v.Push.Compare(w.Push) == 0
	})
}

// A fault that is never drawn, or never strikes, finds nothing.
func TestEveryFaultStrikes(t *testing.T) {
	race.Skip(t)
	var struck [faultKinds]int
	lines, longest, recalled := 0, 0, 0
	for seed := range uint64(60) {
		r, err := Run(Draw(seed, steps()))
		if err != nil {
			t.Fatal(err)
		}
		for f, n := range r.Faults {
			struck[f] += n
		}
		recalled += r.Recalled
		lines, longest = lines+r.Lines, max(longest, r.Lines)
	}
	for f, n := range struck {
		if n == 0 {
			t.Errorf("%v never strikes", Fault(f))
		}
	}
	if recalled < 20 {
		t.Errorf("servers find their shards outside of themselves %d times", recalled)
	}
	if longest < 3 {
		t.Errorf("no run starts more than %d lines", longest)
	}
}

// TestSoak runs the number of seeds that -seeds gives on all cores: make soak. Without a number it
// runs a few, so that it is known to work.
func TestSoak(t *testing.T) {
	race.Skip(t)
	if *seedsFlag == 0 {
		*seedsFlag = 20
		defer func() { *seedsFlag = 0 }()
	}
	start := time.Now()
	var next, events, virtual, failed atomic.Int64
	rate := func(n int64) float64 { return float64(n) / time.Since(start).Seconds() }
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(*seedsFlag) || failed.Load() > 20 {
					return
				}
				r, err := Run(Draw(*fromFlag+uint64(n)-1, steps()))
				if err != nil {
					failed.Add(1)
					t.Error(err)
				}
				events.Add(int64(r.Events))
				virtual.Add(int64(r.Virtual))
				if n%5000 == 0 {
					fmt.Printf("%d of %d seeds, %.0f seeds/s, %d failed\n", n, *seedsFlag, rate(n), failed.Load())
				}
			}
		})
	}
	wg.Wait()
	result := fmt.Sprintf("seeds %d to %d, steps %d: %d failed; %.0f s on %d cores, %.0f seeds/s, %.1f M events, %.0f hours of virtual time\n",
		*fromFlag, *fromFlag+*seedsFlag-1, *stepsFlag, failed.Load(), time.Since(start).Seconds(), runtime.GOMAXPROCS(0), rate(int64(*seedsFlag)),
		float64(events.Load())/1e6, time.Duration(virtual.Load()).Hours())
	fmt.Print(result)
	if *soakFlag == "" {
		return
	}
	f, err := os.OpenFile(*soakFlag, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(result)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
