package drawn

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Every state, every kind of fault and an interruption are drawn, and every fault can be parsed.
// The seed and the number of a run determine it.
func TestFaultsOfEveryKindAreDrawn(t *testing.T) {
	var drawn []string
	for n := range 1000 {
		d := Space{Seed: 1}.Draw(n)
		if !reflect.DeepEqual(d, Space{Seed: 1}.Draw(n)) {
			t.Fatalf("run %d is once this and once another: %s", n, d)
		}
		faults, err := launch.ParseFaults(d.Faults)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			if f.Part.Role == launch.Server && f.Part.Index >= d.servers || f.Part.Role == launch.Worker && f.Part.Index >= d.workers || f.At.Step >= kintsugi.Step(d.steps) {
				t.Errorf("run %d has the fault %q: %s", n, f, d)
			}
			drawn = append(drawn, f.Kind.String()+" "+f.Part.Role.String(), f.Part.Role.String()+" "+f.At.State)
		}
		if d.Interrupt > 0 {
			drawn = append(drawn, "the whole run")
		}
		if len(d.Resumed) > 0 {
			drawn = append(drawn, d.Resumed[slices.Index(d.Resumed, "--recovery")+1]+" after the whole run")
			if d.other {
				drawn = append(drawn, "other workers after the whole run")
			}
		}
		if n := len(d.Faults); n > 1 && faults[n-1].At == faults[n-2].At && faults[n-1].Part != faults[n-2].Part {
			drawn = append(drawn, "servers together")
		}
		if d.replicas == 3 {
			drawn = append(drawn, "three replicas")
		}
		if d.recovery == "scar" && slices.ContainsFunc(d.Settings, func(s string) bool { return strings.HasPrefix(s, "scar:") }) {
			drawn = append(drawn, "a running checkpoint of its own form")
		}
	}
	want := []string{
		"kill coordinator", "pause coordinator", "kill server", "lose server", "notice server", "pause server",
		"kill worker", "notice worker", "pause worker", "slow worker", "the whole run",
		"other workers after the whole run", "chain after the whole run", "scar after the whole run",
		"servers together", "three replicas", "a running checkpoint of its own form",
	}
	for _, s := range launch.ServerStates() {
		want = append(want, "server "+s)
	}
	for _, s := range launch.WorkerStates() {
		want = append(want, "worker "+s)
	}
	for _, w := range want {
		if !slices.Contains(drawn, w) {
			t.Errorf("never drawn: %s", w)
		}
	}
}

// Of an exact space, every run that has counted all gradients must have the parameters of the
// undisturbed one, also if it was killed as a whole and went on with what is drawn for that. So
// nothing is drawn of which that does not hold.
func TestExactRunsMustRepeat(t *testing.T) {
	resumed, different := 0, 0
	for n := range 1000 {
		s := Space{Seed: 1, Exact: true}
		if n%2 == 1 {
			s.Program = []string{"python3", "train.py"}
		}
		d := s.Draw(n)
		got := result{interrupted: d.Interrupt > 0, resumed: len(d.Resumed) > 0}
		got.summary.UsefulGradients, got.summary.ResidualsLost = uint64(d.steps*d.workers), 1
		if !d.repeats(got) {
			t.Errorf("run %d need not repeat: %s", n, d)
		}
		if got.resumed {
			resumed++
		}
		if d.String() != (Space{Seed: 1, Program: s.Program}).Draw(n).String() {
			different++
		}
	}
	if resumed < 50 || different < 500 {
		t.Errorf("%d runs are resumed, and %d are not what they are in a space that is not exact", resumed, different)
	}
}

func TestWhatADrawnRunPromises(t *testing.T) {
	calm := record.Summary{Reason: kintsugi.AllSteps, Steps: 80, UsefulGradients: 160}
	with := func(change func(*record.Summary)) result {
		s := calm
		change(&s)
		return result{summary: s}
	}
	failed := func(f record.FailureCost) result {
		f.Part, f.Step = "server/0", 40
		return with(func(s *record.Summary) { s.Failures = []record.FailureCost{f} })
	}
	interrupted := func(r result) result { r.interrupted = true; return r }
	resumed := func(r result) result { r.interrupted, r.resumed = true, true; return r }
	sync := Training{workers: 2, steps: 80, synchronous: true, recovery: "gold"}
	but := func(change func(*Training)) *Training {
		d := sync
		change(&d)
		return &d
	}
	back := record.FailureCost{LostSteps: 3}
	for name, x := range map[string]struct {
		d       *Training
		got     result
		broken  string
		repeats bool
	}{
		"all is well":                        {&sync, result{summary: calm}, "", true},
		"a failure that lost nothing":        {&sync, failed(record.FailureCost{}), "", true},
		"it ended early":                     {&sync, with(func(s *record.Summary) { s.Steps = 70 }), "it ended at step 70 of 80: " + kintsugi.AllSteps, true},
		"it ended otherwise":                 {&sync, with(func(s *record.Summary) { s.Reason = "enough" }), "it ended at step 80 of 80: enough", true},
		"a damaged checkpoint":               {&sync, result{summary: calm, damaged: 2}, "its checkpoint has 2 damaged places", true},
		"a process that crashed":             {&sync, result{summary: calm, crashes: []string{"worker-0.log: panic: no"}}, "worker-0.log: panic: no", true},
		"steps taken back":                   {&sync, failed(back), "the failure of server/0 at step 40 took back 3 steps", true},
		"steps taken back as all died":       {&sync, interrupted(failed(back)), "", true},
		"steps taken back with the host":     {but(func(d *Training) { d.loses = true }), failed(back), "", true},
		"steps taken back of two replicas":   {but(func(d *Training) { d.replicas = 2 }), failed(back), "", true},
		"steps taken back to the checkpoint": {but(func(d *Training) { d.recovery = "checkpoint" }), failed(back), "", true},
		"a shard older than the others":      {&sync, failed(record.FailureCost{PartialChunks: 1}), "", false},
		"scar":                               {but(func(d *Training) { d.partial = true }), result{summary: calm}, "", false},
		"resumed":                            {&sync, resumed(result{summary: calm}), "", true},
		"resumed with other workers":         {but(func(d *Training) { d.other = true }), resumed(result{summary: calm}), "", false},
		"begun anew, in place of that":       {but(func(d *Training) { d.other = true }), interrupted(result{summary: calm}), "", true},
		"a step without one of the workers":  {&sync, with(func(s *record.Summary) { s.UsefulGradients-- }), "", false},
		"asynchronous steps":                 {but(func(d *Training) { d.synchronous = false }), result{summary: calm}, "", false},
		"lossy, and nothing was lost":        {but(func(d *Training) { d.lossy = true }), result{summary: calm}, "", true},
		"lossy, and a residual was lost":     {but(func(d *Training) { d.lossy = true }), with(func(s *record.Summary) { s.ResidualsLost = 1 }), "", false},
		"lossy, and all died":                {but(func(d *Training) { d.lossy = true }), interrupted(result{summary: calm}), "", false},
	} {
		if got := strings.Join(x.d.broken(x.got), "; "); got != x.broken {
			t.Errorf("%s: broken is %q, want %q", name, got, x.broken)
		}
		if got := x.d.repeats(x.got); got != x.repeats {
			t.Errorf("%s: it must have the parameters of the calm run: %v, want %v", name, got, x.repeats)
		}
	}
}
