package launch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// story runs the faults through a schedule, and prints what is due at each (step, seconds).
func story(t *testing.T, faults []string, moments ...[2]int) string {
	t.Helper()
	parsed, err := ParseFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSchedule(parsed)
	var b strings.Builder
	for _, m := range moments {
		for _, a := range s.Due(kintsugi.Step(m[0]), time.Duration(m[1])*time.Second) {
			fmt.Fprintf(&b, "step %d, %ds: %s %s", m[0], m[1], a.Kind, a.Part)
			if a.Hold {
				b.WriteString(" and hold")
			}
			if a.Factor != 0 {
				fmt.Fprintf(&b, " x%g", a.Factor)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestScheduleTellsEachActionOnce(t *testing.T) {
	got := story(t, []string{
		"kill server/0 at step 10 for 5s",
		"kill worker/1 at 20s",
		"pause server/1 at step 10 for 3s",
		"slow worker/2 x4 from step 5 to step 30",
	}, [2]int{4, 1}, [2]int{5, 2}, [2]int{11, 3}, [2]int{11, 4}, [2]int{7, 6}, [2]int{8, 8}, [2]int{10, 20}, [2]int{31, 21}, [2]int{40, 99})
	want := `step 5, 2s: slow worker/2 x4
step 11, 3s: kill server/0 and hold
step 11, 3s: pause server/1
step 7, 6s: resume server/1
step 8, 8s: start server/0
step 10, 20s: kill worker/1
step 31, 21s: unslow worker/2
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOverlappingFaultsReleaseAPartOnlyWithTheLast(t *testing.T) {
	got := story(t, []string{
		"kill server/0 at 1s for 10s",
		"kill server/0 at 3s for 2s",
		"slow worker/0 x2 from 1s to 6s",
		"slow worker/0 x3 from 2s to 4s",
	}, [2]int{0, 1}, [2]int{0, 2}, [2]int{0, 3}, [2]int{0, 4}, [2]int{0, 5}, [2]int{0, 6}, [2]int{0, 11})
	want := `step 0, 1s: kill server/0 and hold
step 0, 1s: slow worker/0 x2
step 0, 2s: slow worker/0 x6
step 0, 3s: kill server/0 and hold
step 0, 4s: slow worker/0 x2
step 0, 6s: unslow worker/0
step 0, 11s: start server/0
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNextNamesTheMomentAtWhichTimeAloneMakesSomethingDue(t *testing.T) {
	faults, err := ParseFaults([]string{"kill server/0 at step 10 for 5s", "kill worker/1 at 20s"})
	if err != nil {
		t.Fatal(err)
	}
	s := NewSchedule(faults)
	check := func(want time.Duration, wantFound bool) {
		t.Helper()
		if got, found := s.Next(); got != want || found != wantFound {
			t.Errorf("next is %v, %v; want %v, %v", got, found, want, wantFound)
		}
	}
	check(20*time.Second, true)
	s.Due(10, 2*time.Second)
	check(7*time.Second, true) // the end of the hold
	s.Due(10, 7*time.Second)
	check(20*time.Second, true)
	if left := s.Unreached(); len(left) != 1 || left[0] != faults[1] {
		t.Errorf("unreached: %v, want %v", left, faults[1:])
	}
	s.Due(10, 20*time.Second)
	check(0, false)
}

// The slow, obvious version: a part is held while any fault that has begun has not ended, whatever
// the order of the calls. After each call the actions must add up to exactly that.
func TestScheduleAgreesWithTheObviousVersion(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		faults := randomFaults(rng)
		s := NewSchedule(slices.Clone(faults)) // the obvious version changes its own copy
		began := make([]time.Duration, len(faults))
		for i := range began {
			began[i] = -1
		}
		held := map[string]float64{}
		kills := 0
		step, elapsed := kintsugi.Step(0), time.Duration(0)
		for range 40 {
			step += kintsugi.Step(rng.IntN(4))
			elapsed += time.Duration(rng.IntN(4)) * time.Second
			if rng.IntN(10) == 0 {
				step -= min(step, 5) // a restore
			}
			for _, a := range s.Due(step, elapsed) {
				kills += apply(held, a)
			}
			wantKills := 0
			want := obviousHolds(faults, began, step, elapsed)
			for i, f := range faults {
				if f.Kind == Kill && began[i] >= 0 {
					wantKills++
				}
			}
			for _, key := range slices.Concat(keys(held), keys(want)) {
				if held[key] != want[key] {
					t.Fatalf("seed %d, step %d, %v: %s is %v, want %v\nfaults %v", seed, step, elapsed, key, held[key], want[key], faults)
				}
			}
			if kills != wantKills {
				t.Fatalf("seed %d: %d kills, want %d", seed, kills, wantKills)
			}
		}
	}
}

func randomFaults(rng *rand.Rand) []Fault {
	moment := func(lo int) Moment {
		if rng.IntN(2) == 0 {
			return Moment{Step: kintsugi.Step(lo + rng.IntN(40))}
		}
		return Moment{Elapsed: time.Duration(lo+rng.IntN(40)) * time.Second}
	}
	faults := make([]Fault, 1+rng.IntN(6))
	for i := range faults {
		f := Fault{Kind: FaultKind(1 + rng.IntN(3)), Part: Part{Worker, rng.IntN(2)}, At: moment(1)}
		switch f.Kind {
		case Slow:
			f.Factor = float64(2 + rng.IntN(3)) // small powers, so that products are exact
			if rng.IntN(2) == 0 {
				f.Until = moment(41)
			}
		case Pause:
			f.For = time.Duration(1+rng.IntN(9)) * time.Second
		case Kill:
			f.For = time.Duration(rng.IntN(9)) * time.Second
		}
		faults[i] = f
	}
	return faults
}

// apply adds the effect of a to held, and returns the number of kills.
func apply(held map[string]float64, a Action) int {
	part := a.Part.String()
	switch a.Kind {
	case ActKill:
		if a.Hold {
			held["down "+part] = 1
		}
		return 1
	case ActStart:
		delete(held, "down "+part)
	case ActPause:
		held["paused "+part] = 1
	case ActResume:
		delete(held, "paused "+part)
	case ActSlow:
		held["slow "+part] = a.Factor
	case ActUnslow:
		delete(held, "slow "+part)
	}
	return 0
}

func obviousHolds(faults []Fault, began []time.Duration, step kintsugi.Step, elapsed time.Duration) map[string]float64 {
	held := map[string]float64{}
	for i, f := range faults {
		if began[i] < 0 {
			if !f.At.Reached(step, elapsed) {
				continue
			}
			began[i] = elapsed
		}
		part := f.Part.String()
		if f.Kind != Slow && elapsed-began[i] >= f.For {
			continue
		}
		switch f.Kind {
		case Kill:
			held["down "+part] = 1
		case Pause:
			held["paused "+part] = 1
		case Slow:
			if f.Until.Reached(step, elapsed) {
				faults[i].Until = Moment{Elapsed: 1} // an end that was reached stays reached when steps go back
				continue
			}
			held["slow "+part] = max(1, held["slow "+part]) * f.Factor
		}
	}
	return held
}

func keys(m map[string]float64) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}
