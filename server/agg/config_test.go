package agg

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestEachPresetIsItsPointInTheSpaceOfKnobs(t *testing.T) {
	const inf = kintsugi.Infinite
	for text, want := range map[string]Config{
		"bsp":                        {},
		"bsp:sum,pull":               {Scale: Sum, Busy: kintsugi.Pull},
		"backup:0":                   {Lead: inf},
		"backup:3":                   {Backup: 3, Lead: inf},
		"backup:1,wait":              {Backup: 1, Lead: inf, Busy: kintsugi.Wait},
		"backup:1,staleness=2":       {Backup: 1, Lead: inf, Late: Apply, Staleness: 2},
		"async":                      {Quota: 1, Late: Apply, Staleness: inf, Lead: inf, PerWorker: math.MaxInt32, Linear: true},
		"async:discount":             {Quota: 1, Late: Apply, Staleness: inf, Lead: inf, PerWorker: math.MaxInt32, Linear: true, Discount: true},
		"async:staleness=8,credit=2": {Quota: 1, Late: Apply, Staleness: 8, Lead: inf, PerWorker: math.MaxInt32, Linear: true, Credit: 2},
		"async:drop":                 {Quota: 1, Lead: inf, PerWorker: math.MaxInt32, Linear: true},
		"ssp:0":                      {Quota: 1, Late: Apply, Staleness: inf, PerWorker: math.MaxInt32, Linear: true},
		"ssp:3,discount,sum":         {Quota: 1, Late: Apply, Staleness: inf, Lead: 3, PerWorker: math.MaxInt32, Linear: true, Discount: true, Scale: Sum},
		"ssp:3,lead=inf":             {Quota: 1, Late: Apply, Staleness: inf, Lead: inf, PerWorker: math.MaxInt32, Linear: true},
		"rennala:8":                  {Quota: 8, Lead: inf, PerWorker: 8, Credit: 8},
		"dbw":                        {Controller: "dbw", Lead: inf},
		"dbw:paper,wait":             {Controller: "dbw:paper", Lead: inf, Busy: kintsugi.Wait},
		"dbw:joint":                  {Controller: "dbw:joint", Lead: inf},
		"bdbw:pull":                  {Controller: "bdbw", Lead: inf, Busy: kintsugi.Pull},
		"adasync":                    {Controller: "adasync:1", Lead: inf},
		"adasync:wait":               {Controller: "adasync:1", Lead: inf, Busy: kintsugi.Wait},
		"adasync:4,wait":             {Controller: "adasync:4", Lead: inf, Busy: kintsugi.Wait},
		"backup:2,knee=8":            {Backup: 2, Lead: inf, Knee: 8},
		"backup:2,linear":            {Backup: 2, Lead: inf, Linear: true},
		"ssp:3,knee=8":               {Quota: 1, Late: Apply, Staleness: inf, Lead: 3, PerWorker: math.MaxInt32, Knee: 8},
		"ssp:3,constant":             {Quota: 1, Late: Apply, Staleness: inf, Lead: 3, PerWorker: math.MaxInt32},
		"rennala:8,limit=2,credit=3": {Quota: 8, Lead: inf, PerWorker: 2, Credit: 3},
		"backup:2,knee=1048576":      {Backup: 2, Lead: inf, Knee: 1 << 20},
		"bsp:sum,mean,pull,wait":     {Busy: kintsugi.Wait},
		"bsp:wait,interrupt":         {},
	} {
		got, err := Preset(text)
		if err != nil || got != want {
			t.Errorf("%s is %+v (%v), want %+v", text, got, err, want)
		}
		if err := got.Check(8); err != nil {
			t.Errorf("%s does not fit a run of 8 workers: %v", text, err)
		}
	}
}

// The lists stand in the help and in error messages.
func TestFormsAreListedAsTheyAreWritten(t *testing.T) {
	presets := []string{
		"bsp", "backup:B", "async", "ssp:S", "rennala:K",
		"dbw", "dbw:paper", "dbw:joint", "bdbw", "adasync", "adasync:K",
	}
	if got := Presets(); !slices.Equal(got, presets) {
		t.Errorf("presets %q, want %q", got, presets)
	}
	options := []string{
		"mean", "sum", "drop", "staleness=N", "discount", "lead=N", "limit=N", "credit=N", "knee=N", "linear", "constant", "interrupt", "wait", "pull",
	}
	if got := Options(); !slices.Equal(got, options) {
		t.Errorf("options %q, want %q", got, options)
	}
}

func TestEveryListedFormIsRead(t *testing.T) {
	for _, form := range Presets() {
		text := strings.TrimRight(form, "BSK")
		if text != form {
			text += "2"
		}
		if _, err := Preset(text); err != nil {
			t.Errorf("%s as %s: %v", form, text, err)
		}
		for _, o := range Options() {
			sep := ":"
			if strings.Contains(text, ":") {
				sep = ","
			}
			if _, err := Preset(text + sep + strings.Replace(o, "N", "2", 1)); err != nil {
				t.Errorf("%s with %s: %v", text, o, err)
			}
		}
	}
}

func TestAWrongPresetIsAUsageErrorThatSaysHowItIsWritten(t *testing.T) {
	for text, says := range map[string]string{
		"":                  "bsp, backup:B, async, ssp:S, rennala:K",
		"bps":               "bsp, backup:B, async, ssp:S, rennala:K",
		"backup":            "write backup:B with a whole number B from 0",
		"backup:":           "write backup:B",
		"backup:-1":         "write backup:B",
		"backup:inf":        "write backup:B",
		"ssp:three":         "write ssp:S",
		"ssp:99999999999":   "write ssp:S",
		"rennala:0":         "write rennala:K with a whole number K from 1",
		"bsp:3":             `"3" is no option; use bsp with any of mean, sum`,
		"async:":            `"" is no option`,
		"async:discount=1":  `"discount=1" is no option`,
		"async:staleness":   `"staleness" is no option; use async with any of`,
		"async:credit=0":    `"credit=0" is no option`,
		"async:credit=inf":  `"credit=inf" is no option`,
		"ssp:3,,sum":        `"" is no option`,
		"backup:1,lead=-1":  `"lead=-1" is no option`,
		"backup:1 ,pull":    "write backup:B",
		"rennala:4,limit=x": `"limit=x" is no option`,
		"dbw:4":             `"4" is no option; use dbw`,
		"bsp:paper":         `"paper" is no option`,
		"adasync:0":         "write adasync:K with a whole number K from 1",
	} {
		_, err := Preset(text)
		if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v\nwant a usage error that says %q", text, err, says)
		}
	}
}

func TestKnobsThatContradictEachOtherAreAUsageError(t *testing.T) {
	const inf = kintsugi.Infinite
	for _, c := range []struct {
		cfg  Config
		says string
	}{
		{Config{Quota: -1}, "must not be negative"},
		{Config{Backup: 4}, "4 backup workers of 4 leave nobody to wait for; use at most 3"},
		{Config{Quota: 2, Backup: 1}, "contradict"},
		{Config{Quota: 5, Lead: inf}, "4 workers cannot have more than 4 in one step"},
		{Config{Quota: 9, Lead: inf, PerWorker: 8, Credit: 2}, "4 workers cannot have more than 8 in one step"},
		{Config{Quota: 1, Late: Apply, Staleness: inf, Lead: 3, Credit: 2}, "a lead of 3 cannot be kept with a credit of 2"},
		{Config{Lead: inf, Credit: 2}, "of no use"},
		{Config{Controller: "dbw", Backup: 1}, "dbw chooses the quota"},
		{Config{Controller: "dbw", Late: Apply, Staleness: 2, Lead: inf}, "one fresh gradient"},
		{Config{Controller: "bdbw", Scale: Sum, Lead: inf}, "with a sum the quota would change the learning rate"},
		{Config{Controller: "dbw", Quota: 1, Lead: inf}, "dbw chooses the quota"},
		{Config{Controller: "dbw", PerWorker: 2, Credit: 2, Lead: inf}, "one fresh gradient"},
		{Config{Backup: 1, Credit: 2}, "a lead of 0 cannot be kept with a credit of 2"},
		{Config{Continue: true}, "staleness above 0"},
		{Config{Busy: 9}, "way 9"},
	} {
		if err := c.cfg.Check(4); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v\nwant a usage error that says %q", c.cfg, err, c.says)
		}
	}
	for _, fits := range []Config{
		{Quota: 4},
		{Backup: 3},
		{Quota: 8, Lead: inf, PerWorker: 2, Credit: 2},
		{Late: Apply, Staleness: 1, Lead: inf, Credit: 2},
		{PerWorker: 2, Credit: 2, Lead: 3}, // nobody can be ahead, so there is no lead to keep
		{Controller: "dbw", PerWorker: 2, Credit: 1, Lead: inf},
		{Late: Apply, Staleness: 1, Continue: true},
		{Busy: kintsugi.Pull},
	} {
		if err := fits.Check(4); err != nil {
			t.Errorf("%+v: %v", fits, err)
		}
	}
}

// Where every step waits for a fresh gradient of each member, nobody can be ahead.
func TestALeadIsKeptWhereAWorkerCanBeAhead(t *testing.T) {
	const inf = kintsugi.Infinite
	for text, want := range map[string]uint32{
		"bsp": inf, "bsp:lead=3": inf, "backup:0,lead=3": inf,
		"backup:1": inf, "backup:1,lead=3": 3, "bsp:staleness=1": 0, "bsp:staleness=1,lead=2": 2, "ssp:4": 4, "ssp:0": 0, "async": inf,
		"rennala:2,lead=5": 5, "dbw": inf, "dbw:lead=1": 1,
	} {
		cfg, err := Preset(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Leads(); got != want {
			t.Errorf("%s: a lead of %d is kept, want %d", text, got, want)
		}
	}
}

// A step is certain if it counts one fresh gradient of every member, however it weighs them.
func TestOnlyStepsOfAllMembersAreCertain(t *testing.T) {
	for text, want := range map[string]bool{
		"bsp": true, "bsp:sum,wait": true, "bsp:knee=3": true, "backup:0": true,
		"backup:1": false, "bsp:staleness=1": false, "async": false, "ssp:0": false, "rennala:4": false, "dbw": false, "adasync": false,
		"bsp:limit=2,credit=2": false,
	} {
		cfg, err := Preset(text)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Certain() != want {
			t.Errorf("%s: what it counts is certain: %v, want %v", text, !want, want)
		}
	}
}

func TestTheQuotaFollowsTheMembers(t *testing.T) {
	for _, c := range []struct {
		preset  string
		members int
		quota   int
		reason  string
	}{
		{"bsp", 4, 4, "all members (4)"},
		{"bsp", 1, 1, "all members (1)"},
		{"backup:1", 4, 3, "3 of 4 members"},
		{"backup:1", 2, 1, "1 of 2 members"},
		{"backup:1", 1, 1, "one of 1 members: no more than the 1 backup workers are left"},
		{"async", 4, 1, "fixed quota 1"},
		{"ssp:2", 4, 1, "fixed quota 1"},
		{"rennala:8", 1, 8, "fixed quota 8"},
		{"rennala:8,limit=2", 4, 8, "fixed quota 8"},
		{"rennala:8,limit=2", 3, 6, "all that 3 members can have (6 of a quota of 8)"},
	} {
		cfg, err := Preset(c.preset)
		if err != nil {
			t.Fatal(err)
		}
		if quota, reason := cfg.quota(c.members); quota != c.quota || reason != c.reason {
			t.Errorf("%s with %d members waits for %d: %s\nwant %d: %s", c.preset, c.members, quota, reason, c.quota, c.reason)
		}
	}
}

// A gradient is the mean over its examples, so a mean divides by the examples, whatever the
// weights. A late gradient that is a step of its own is damped, and two fresh ones weigh as their
// numbers of examples.
func TestTheDiscountDampsAStep(t *testing.T) {
	for _, c := range []struct {
		cfg         Config
		fresh, late float32 // weights of 8 examples with staleness 0, and of 16 with staleness 3
		scale       float32
	}{
		{Config{}, 8, 16, 1.0 / 24},
		{Config{Discount: true}, 8, 4, 1.0 / 24},
		{Config{Scale: Sum}, 1, 1, 1},
		{Config{Scale: Sum, Discount: true}, 1, 0.25, 1},
	} {
		if fresh, late, scale := c.cfg.weight(&kintsugi.Ticket{Examples: 8}, 0, step{}), c.cfg.weight(&kintsugi.Ticket{Examples: 16}, 3, step{}), c.cfg.scale(24); fresh != c.fresh || late != c.late || scale != c.scale {
			t.Errorf("%+v: weights %v and %v, scale %v; want %v, %v, %v", c.cfg, fresh, late, scale, c.fresh, c.late, c.scale)
		}
	}
}

func TestThePaceTellsWorkersWhatTheyMustKnow(t *testing.T) {
	for text, want := range map[string]kintsugi.Pace{
		"bsp":           {Credit: 1, Prefetch: true},
		"backup:1,wait": {Credit: 1, Prefetch: true, Busy: kintsugi.Wait},
		"async":         {Credit: 1, Staleness: kintsugi.Infinite},
		"ssp:4":         {Credit: 1, Staleness: kintsugi.Infinite},
		"rennala:6":     {Credit: 6},
	} {
		cfg, err := Preset(text)
		if err != nil || cfg.Pace() != want {
			t.Errorf("%s: %+v (%v), want %+v", text, cfg.Pace(), err, want)
		}
		if held := cfg.Held(); held < 4 || held < 2*want.Credit {
			t.Errorf("%s: shards hold %d pushes of a worker with a credit of %d", text, held, want.Credit)
		}
	}
}

func TestTheKneeLowersTheRateInProportion(t *testing.T) {
	for _, c := range []struct {
		cfg              Config
		counted, members int
		want             float64
	}{
		{Config{}, 1, 4, 1},
		{Config{Knee: 4}, 1, 8, 0.25}, {Config{Knee: 4}, 3, 8, 0.75}, {Config{Knee: 4}, 4, 8, 1}, {Config{Knee: 4}, 9, 9, 1},
		{Config{Linear: true}, 1, 8, 0.125}, {Config{Linear: true}, 1, 1, 1}, {Config{Linear: true}, 3, 2, 1},
	} {
		if got := c.cfg.RatePart(c.counted, c.members); got != c.want {
			t.Errorf("%+v: %d gradients of %d members have %v of the rate, want %v", c.cfg, c.counted, c.members, got, c.want)
		}
	}
}

// Whatever a step counts and however its rate is chosen, the path of one of n workers moves the
// parameters by an nth of it.
func TestThePathOfOneOfNWorkersIsAnNthOfAStep(t *testing.T) {
	for _, text := range []string{"async", "async:constant", "async:discount", "ssp:3", "bsp:staleness=4", "bsp:sum,staleness=4", "async:knee=3,sum"} {
		cfg, err := Preset(text)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Continue, cfg.Keep = true, kintsugi.KeepLocal
		for members := 1; members <= 5; members++ {
			counted, _ := cfg.quota(members)
			path := kintsugi.Ticket{Examples: 32, SquaredNorm: 1e9, Kept: 5000}
			w := cfg.weight(&path, 7, step{usual: 1, counted: counted, members: members})
			moves := cfg.RatePart(counted, members) * float64(w) * float64(cfg.scale(uint64(32*counted)))
			if want := 1 / float64(members); math.Abs(moves-want) > 1e-6*want {
				t.Errorf("%s, %d members: a path moves the parameters by %v of itself, want %v", text, members, moves, want)
			}
		}
	}
}

// A kept gradient is weighted by its rule: reduced by its staleness and no longer than usual; as
// any late gradient; or with a tenth of the rate for each gradient that it is the mean of.
func TestKeptGradientsHaveTheWeightOfTheirRule(t *testing.T) {
	long := kintsugi.Ticket{Examples: 10, SquaredNorm: 16, Kept: 30}
	short := kintsugi.Ticket{Examples: 10, SquaredNorm: 1, Kept: 30}
	for _, c := range []struct {
		keep kintsugi.KeepRule
		t    kintsugi.Ticket
		want float32
	}{
		{kintsugi.KeepDecay, short, 2.5}, {kintsugi.KeepDecay, long, 1.25},
		{kintsugi.KeepAverage, short, 10}, {kintsugi.KeepAverage, long, 10},
		{kintsugi.KeepSum, short, 30}, {kintsugi.KeepSum, long, 30},
	} {
		cfg := Config{Late: Apply, Staleness: 8, Continue: true, Keep: c.keep}
		if got := cfg.weight(&c.t, 3, step{usual: 4}); got != c.want {
			t.Errorf("%v, squared norm %v: weight %v, want %v", c.keep, c.t.SquaredNorm, got, c.want)
		}
		ordinary := c.t
		ordinary.Kept = 0
		if got := cfg.weight(&ordinary, 3, step{usual: 4}); got != 10 {
			t.Errorf("%v: an ordinary late gradient has weight %v", c.keep, got)
		}
	}
	cfg := Config{Late: Apply, Staleness: 8, Continue: true, Keep: kintsugi.KeepLocal}
	if got := cfg.weight(&kintsugi.Ticket{Examples: 10, SquaredNorm: 16}, 3, step{usual: 4, counted: 1, members: 4}); got != 10 {
		t.Errorf("where kept gradients are paths, an ordinary late gradient has weight %v", got)
	}
	if err := (Config{Continue: true}).Check(2); err == nil {
		t.Error("workers go on although no late gradient counts")
	}
}

func TestARunWithoutWorkersIsAUsageError(t *testing.T) {
	for _, workers := range []int{0, -1} {
		if err := (Config{}).Check(workers); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "needs a worker") || strings.Contains(err.Error(), "backup") {
			t.Errorf("%d workers: %v", workers, err)
		}
	}
}
