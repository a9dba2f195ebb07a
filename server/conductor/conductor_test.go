package conductor_test

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// inRun returns a conductor on line 1 in view 1, under fence 5 if cfg says nothing else, whose shards
// have all answered alike, and whose workers are all members.
func inRun(t *testing.T, now time.Time, cfg conductor.Config, taken kintsugi.Taken) *conductor.Conductor {
	t.Helper()
	cfg.Line, cfg.View, cfg.Fence = 1, cmp.Or(cfg.View, 1), cmp.Or(cfg.Fence, 5)
	x, err := conductor.New(cfg, now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range kintsugi.ShardID(cfg.Shards) {
		x.ShardConnected(i)
		taken.Shard, taken.Fence = i, cfg.Fence
		x.HandleReplica(now, taken)
	}
	for slot := range kintsugi.Slot(cfg.Slots) {
		if err := x.HandleHello(now, hello(slot, 1)); err != nil {
			t.Fatal(err)
		}
	}
	known(x, now, cfg.Shards, uint64(cfg.Slots))
	x.Ready()
	return x
}

func hello(slot kintsugi.Slot, n kintsugi.Incarnation) kintsugi.Hello {
	return kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: slot, Incarnation: n}
}

// known lets shards say that they know all changes of members up to change.
func known(x *conductor.Conductor, now time.Time, shards int, change uint64) {
	for i := range kintsugi.ShardID(shards) {
		x.HandleReplica(now, kintsugi.MembersKnown{Shard: i, Fence: x.Fence(), Change: change})
	}
}

// gradientOf returns the ticket of a worker's first process, for a gradient that every shard has
// acknowledged in view 1.
func gradientOf(slot kintsugi.Slot, version kintsugi.Step) kintsugi.Ticket {
	return kintsugi.Ticket{
		Push:  kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1, Version: version},
		Views: []kintsugi.ViewNumber{1}, Examples: 8, SquaredNorm: 1,
	}
}

// stable lets all shards say that they have taken a step that x has decided.
func stable(x *conductor.Conductor, now time.Time, shards int, step kintsugi.Step) {
	for i := range kintsugi.ShardID(shards) {
		x.HandleReplica(now, kintsugi.Stable{Shard: i, Fence: x.Fence(), Step: step, Decided: x.Fence()})
	}
}

func TestNewRefusesRunsThatCannotGoOn(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  conductor.Config
		ok   bool
	}{
		{"one shard, one worker", conductor.Config{Shards: 1, Slots: 1}, true},
		{"no shard", conductor.Config{Slots: 1}, false},
		{"no worker", conductor.Config{Shards: 1}, false},
		{"a negative quota", conductor.Config{Shards: 1, Slots: 1, Consistency: agg.Config{Quota: -1}}, false},
		{"a quota of all workers", conductor.Config{Shards: 1, Slots: 3, Consistency: agg.Config{Quota: 3}}, true},
		{"a quota of more workers than there are", conductor.Config{Shards: 1, Slots: 3, Consistency: agg.Config{Quota: 4}}, false},
		{"as many gradients as two workers may add", conductor.Config{Shards: 1, Slots: 2, Consistency: agg.Config{Quota: 6, PerWorker: 3, Credit: 3, Lead: kintsugi.Infinite}}, true},
		{"one more", conductor.Config{Shards: 1, Slots: 2, Consistency: agg.Config{Quota: 7, PerWorker: 3, Credit: 3, Lead: kintsugi.Infinite}}, false},
		{"any number of each", conductor.Config{Shards: 1, Slots: 2, Consistency: agg.Config{Quota: 1 << 20, PerWorker: 1 << 20, Credit: 1 << 20, Lead: kintsugi.Infinite}}, true},
		{"no worker to wait for", conductor.Config{Shards: 1, Slots: 2, Consistency: agg.Config{Backup: 2}}, false},
	} {
		_, err := conductor.New(c.cfg, time.Unix(0, 0))
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, kintsugi.ErrUsage)) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestTheScheduleCorrectsTheBiasOfEachStep(t *testing.T) {
	adam := conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.001}
	for _, step := range []kintsugi.Step{1, 2, 10, 1000, 1 << 40} {
		b1, b2 := 1.0, 1.0 // βᵗ as a product, as in the paper
		for range min(step, 100000) {
			b1, b2 = b1*0.9, b2*0.999
		}
		o := adam.At(step)
		for _, c := range []struct {
			name      string
			got, want float32
		}{{"1 − β₁ᵗ", o.Correction1, float32(1 - b1)}, {"1 − β₂ᵗ", o.Correction2, float32(1 - b2)}} {
			if math.Abs(float64(c.got)-float64(c.want)) > 1e-7*float64(c.want) { // the product rounds t times
				t.Errorf("step %d: %s is %v, want %v", step, c.name, c.got, c.want)
			}
		}
	}
	if o := adam.At(1); o.Correction1 != float32(1-0.9) || o.Correction2 != float32(1-0.999) {
		t.Errorf("step 1: corrections %v and %v, want 1−β exactly", o.Correction1, o.Correction2)
	}
}

func TestTheScheduleRoundsEachScalarOnceAndKnowsTheUsualDefaults(t *testing.T) {
	usual := conductor.Schedule{Rule: kintsugi.RuleAdamW, LearningRate: 0.1, WeightDecay: 0.01}.At(3)
	if want := (kintsugi.Optimizer{
		Rule: kintsugi.RuleAdamW, LearningRate: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01,
		Correction1: usual.Correction1, Correction2: usual.Correction2,
	}); usual != want {
		t.Errorf("got %+v, want %+v", usual, want)
	}
	own := conductor.Schedule{Rule: kintsugi.RuleNesterov, LearningRate: 1, Momentum: 0.5, Beta1: 0.25, Beta2: 0.5, Epsilon: 0.125}.At(2)
	if want := (kintsugi.Optimizer{
		Rule: kintsugi.RuleNesterov, LearningRate: 1, Momentum: 0.5, Beta1: 0.25, Beta2: 0.5, Epsilon: 0.125,
		Correction1: 1 - 0.25*0.25, Correction2: 0.75,
	}); own != want {
		t.Errorf("got %+v, want %+v", own, want)
	}
}

// A β₁ of 0 is one that was chosen, unless β₂ is 0 too.
func TestAdamMayKeepNoMeanOfGradients(t *testing.T) {
	beta1, beta2, err := conductor.ParseBetas("0,0.75")
	if err != nil {
		t.Fatal(err)
	}
	o := conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 1, Beta1: beta1, Beta2: beta2}.At(2)
	if o.Beta1 != 0 || o.Correction1 != 1 || o.Beta2 != 0.75 || o.Correction2 != 1-0.75*0.75 || o.Epsilon != 1e-8 {
		t.Errorf("%+v", o)
	}
	if o = (conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 1}).At(1); o.Beta1 != 0.9 || o.Beta2 != 0.999 {
		t.Errorf("%+v, want the usual betas", o)
	}
	if beta1, beta2, err := conductor.ParseBetas(""); beta1 != 0 || beta2 != 0 || err != nil {
		t.Errorf("no betas are %v, %v (%v)", beta1, beta2, err)
	}
	for _, wrong := range []string{"0.9", "0.9,", ",0.9", "1,0.9", "0.9,1", "0.9,0", "-0.1,0.9", "NaN,0.9", "0.9,0.99,0.999", "0.9, 0.99", "0.9,0.99999999"} {
		if _, _, err := conductor.ParseBetas(wrong); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "such as 0.9,0.95") {
			t.Errorf("betas %q: %v", wrong, err)
		}
	}
}

func TestTheLearningRateRisesAndFalls(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     conductor.Schedule
		rates map[kintsugi.Step]float32
	}{
		{"constant", conductor.Schedule{Steps: 10}, map[kintsugi.Step]float32{0: 8, 1: 8, 5: 8, 10: 8, 99: 8}},
		{"linear", conductor.Schedule{Steps: 8, Decay: conductor.Decay{Form: conductor.Linear}}, map[kintsugi.Step]float32{1: 8, 2: 7, 5: 4, 8: 1, 9: 0, 99: 0}},
		{"cosine", conductor.Schedule{Steps: 8, Decay: conductor.Decay{Form: conductor.Cosine}}, map[kintsugi.Step]float32{1: 8, 3: 4 + 2*math.Sqrt2, 5: 4, 7: 4 - 2*math.Sqrt2, 9: 0, 99: 0}},
		{"without an end", conductor.Schedule{Decay: conductor.Decay{Form: conductor.Linear}}, map[kintsugi.Step]float32{1: 8, 99: 8}},
		{"warm-up", conductor.Schedule{Steps: 12, Warmup: 4, Decay: conductor.Decay{Form: conductor.Linear}}, map[kintsugi.Step]float32{1: 2, 2: 4, 4: 8, 5: 8, 6: 7, 12: 1, 13: 0}},
		{"warm-up, constant", conductor.Schedule{Warmup: 2}, map[kintsugi.Step]float32{1: 4, 2: 8, 99: 8}},
		{"warm-up alone", conductor.Schedule{Steps: 4, Warmup: 16, Decay: conductor.Decay{Form: conductor.Cosine}}, map[kintsugi.Step]float32{1: 0.5, 4: 2, 16: 8, 17: 8}},
		{"to a fourth", conductor.Schedule{Steps: 8, Decay: decay(t, "linear:0.25")}, map[kintsugi.Step]float32{1: 8, 5: 5, 9: 2, 99: 2}},
		{"to a half by a cosine", conductor.Schedule{Steps: 8, Decay: decay(t, "cosine:0.5")}, map[kintsugi.Step]float32{1: 8, 5: 6, 9: 4, 99: 4}},
		{"in the last half", conductor.Schedule{Steps: 16, Decay: decay(t, "linear,last=0.5")}, map[kintsugi.Step]float32{1: 8, 8: 8, 9: 8, 10: 7, 16: 1, 17: 0}},
		{"in the last half after a warm-up", conductor.Schedule{Steps: 20, Warmup: 4, Decay: decay(t, "cosine:0.5,last=0.5")}, map[kintsugi.Step]float32{2: 4, 4: 8, 12: 8, 13: 8, 17: 6, 21: 4}},
		{"drops", conductor.Schedule{Steps: 8, Warmup: 2, Decay: decay(t, "drop:0.5@4,6")}, map[kintsugi.Step]float32{1: 4, 2: 8, 4: 8, 5: 4, 6: 4, 7: 2, 99: 2}},
		{"drops without an end", conductor.Schedule{Decay: decay(t, "drop:0@4")}, map[kintsugi.Step]float32{1: 8, 4: 8, 5: 0}},
		{"warm-up to the end", conductor.Schedule{Steps: 4, Warmup: 4, Decay: conductor.Decay{Form: conductor.Cosine}}, map[kintsugi.Step]float32{1: 2, 4: 8, 5: 8}},
	} {
		c.s.Rule, c.s.LearningRate = kintsugi.RuleSGD, 8
		for step, want := range c.rates {
			if got := c.s.At(step).LearningRate; got != want {
				t.Errorf("%s: step %d has %v, want %v", c.name, step, got, want)
			}
		}
	}
}

// A commit has the rate of its step by the schedule, times the part of it that so many gradients
// have.
func TestACommitHasItsPartOfTheRate(t *testing.T) {
	now := time.Unix(0, 0)
	consistency, err := agg.Preset("backup:2,knee=8")
	if err != nil {
		t.Fatal(err)
	}
	x := inRun(t, now, conductor.Config{
		Shards: 1, Slots: 4, Steps: 100, Consistency: consistency,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleMomentum, LearningRate: 8, Momentum: 0.5, Steps: 8, Decay: decay(t, "linear")},
	}, kintsugi.Taken{Applied: 2, Released: 2})
	x.HandleTicket(now, gradientOf(0, 2))
	x.HandleTicket(now, gradientOf(2, 2))
	commits := sent[kintsugi.Commit](x)
	if len(commits) != 1 {
		t.Fatalf("%d commits", len(commits))
	}
	if o := commits[0].Optimizer; o.Rule != kintsugi.RuleMomentum || o.Momentum != 0.5 || o.LearningRate != 6*2.0/8 {
		t.Errorf("step 3 with 2 of 8 gradients: %+v, want a rate of 1.5", o)
	}
}

func decay(t *testing.T, text string) conductor.Decay {
	t.Helper()
	d, err := conductor.ParseDecay(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDecaysAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]conductor.Decay{
		"constant":            {},
		"linear":              {Form: conductor.Linear},
		"linear:0.25":         {Form: conductor.Linear, Part: 0.25},
		"cosine:0.1,last=0.2": {Form: conductor.Cosine, Part: 0.1, Last: 0.2},
		"cosine,last=1":       {Form: conductor.Cosine, Last: 1},
		"drop:0.1@300":        {Form: conductor.Drops, Part: 0.1, At: [8]kintsugi.Step{300}},
		"drop:0@1,2,3,4,5,6,7,18446744073709551615": {Form: conductor.Drops, At: [8]kintsugi.Step{1, 2, 3, 4, 5, 6, 7, math.MaxUint64}},
	} {
		if d := decay(t, text); d != want {
			t.Errorf("%s is read as %+v, want %+v", text, d, want)
		}
	}
	for text, why := range map[string]string{
		"":                           "is unknown; use constant",
		"step":                       "is unknown; use constant",
		"constant:0.1":               "is unknown; use constant",
		"linear:":                    "is unknown; use constant",
		"linear:1":                   `"1" must be a part of the learning rate, at least 0 and less than 1`,
		"cosine:NaN":                 `"NaN" must be a part`,
		"cosine:-0.1":                `"-0.1" must be a part`,
		"cosine:0.1,last=0":          `"0" must be the share of the steps`,
		"linear,last=1.5":            `"1.5" must be the share of the steps`,
		"linear,late=0.5":            "is unknown; use constant",
		"drop:0.1":                   "is unknown; use constant",
		"drop:10@300":                `"10" must be a part`,
		"drop:0.1@0":                 `"0" must be a step after step 0`,
		"drop:0.1@300,300":           `"300" must be a step after step 300`,
		"drop:0.1@300, 600":          `" 600" must be a step after step 300`,
		"drop:0.1@1,2,3,4,5,6,7,8,9": "a rate drops 8 times at most",
	} {
		if d, err := conductor.ParseDecay(text); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), why) || d != (conductor.Decay{}) {
			t.Errorf("%q is read as %v, %v; want an error with %q", text, d, err, why)
		}
	}
}

// Whatever the decay, the rate never rises after the warm-up, and is never below the part that it
// falls to.
func TestNoLearningRateRisesAfterTheWarmUp(t *testing.T) {
	for _, text := range []string{"constant", "linear", "cosine", "linear:0.3,last=0.7", "cosine:0.3,last=0.01", "drop:0.3@1,40,41,90"} {
		s := conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 2, Warmup: 5, Steps: 97, Decay: decay(t, text)}
		before := s.At(s.Warmup).LearningRate
		for step := s.Warmup + 1; step <= s.Steps+3; step++ {
			rate := s.At(step).LearningRate
			if rate > before || !(rate >= 0) || s.Decay.Form != conductor.Drops && float64(rate) < 2*s.Decay.Part-1e-7 {
				t.Errorf("%s: step %d has %v, after %v", text, step, rate, before)
			}
			before = rate
		}
	}
}

func TestWeightDecayIsForMatricesIfTheScheduleSaysSo(t *testing.T) {
	s := conductor.Schedule{Rule: kintsugi.RuleAdamW, LearningRate: 1, WeightDecay: 0.5}
	for _, matrices := range []bool{false, true} {
		s.DecayMatrices = matrices
		o := s.At(1)
		for want, shapes := range map[float32][][]int{0.5: {{1, 5}, {5, 1}, {2, 3, 4, 5}}, 0: {{5}, {1}}} {
			for _, shape := range shapes {
				if got := o.WeightDecayOf(kintsugi.Tensor{Name: "x", Shape: shape}); got != want && (matrices || got != 0.5) {
					t.Errorf("matrices alone: %v: %v has %v, want %v", matrices, shape, got, want)
				}
			}
		}
	}
}

// start returns a run of one shard that nobody has joined yet.
func start(t *testing.T, cfg conductor.Config) (*world, *seat) {
	t.Helper()
	cfg.Line, cfg.View, cfg.Model = 3, 4, 0xabc
	w := newWorld(t, cfg, []int{1})
	s := w.newConductor(1)
	w.open(s, 0)
	w.deliver(s)
	return w, s
}

// deliver delivers every control message.
func (w *world) deliver(s *seat) {
	w.t.Helper()
	for moved := true; moved; {
		moved = false
		for _, l := range s.links {
			for ; len(l.down) > 0; moved = true {
				w.toShard(l)
			}
			for ; len(l.up) > 0; moved = true {
				w.fromShard(l)
			}
		}
	}
}

// join makes a worker a member and discards what it is told.
func (w *world) join(s *seat, slot kintsugi.Slot, n kintsugi.Incarnation) *wire {
	w.t.Helper()
	x := w.connect(s, slot, n)
	w.fromWorker(x)
	w.deliver(s)
	x.down = nil
	return x
}

// gradient pushes a gradient and sends its ticket.
func (w *world) gradient(x *wire, version kintsugi.Step) {
	w.t.Helper()
	p := kintsugi.PushID{Line: w.cfg.Line, Slot: x.slot, Incarnation: x.incarnation, Version: version}
	if refusal := w.replica[0].push(p); refusal != "" {
		w.t.Fatalf("push %v: %s", p, refusal)
	}
	x.up = append(x.up, kintsugi.Ticket{Push: p, Views: []kintsugi.ViewNumber{w.cfg.View}, Loss: 2, Examples: 8, SquaredNorm: 1})
	w.fromWorker(x)
}

func TestHelloIsRefusedWithTheReasonAndWhetherAnotherTryHelps(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 2, Steps: 9})
	w.join(s, 1, 5)
	good := kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Model: 0xabc, Line: 3, Slot: 0, Incarnation: 1}
	for _, c := range []struct {
		name   string
		change func(*kintsugi.Hello)
		want   error
		says   []string
	}{
		{"another protocol", func(h *kintsugi.Hello) { h.Protocol++ }, kintsugi.ErrOtherModel, []string{"worker/0", "same release"}},
		{"another model", func(h *kintsugi.Hello) { h.Model = 0xdef }, kintsugi.ErrOtherModel, []string{"0000000000000def", "0000000000000abc"}},
		{"a line that is over", func(h *kintsugi.Hello) { h.Line = 2 }, kintsugi.ErrStaleView, []string{"line 2", "line 3"}},
		{"a view that has not come here yet", func(h *kintsugi.Hello) { h.View = w.cfg.View + 1 }, kintsugi.ErrStaleView, []string{"this conductor in view"}},
		{"a slot that is not there", func(h *kintsugi.Hello) { h.Slot = 2 }, kintsugi.ErrUsage, []string{"no slot 2", "2 workers"}},
		{"a life that is over", func(h *kintsugi.Hello) { h.Slot, h.Incarnation = 1, 4 }, kintsugi.ErrFenced, []string{"incarnation 5 of worker/1"}},
		{"nothing wrong", func(*kintsugi.Hello) {}, nil, nil},
	} {
		h := good
		c.change(&h)
		err := s.HandleHello(w.now, h)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		for _, word := range c.says {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %q", c.name, err, word)
			}
		}
	}
}

func TestALifeStaysOverWhenTheOneAfterItHasLeft(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 1, Steps: 9, LeaveGrace: time.Second})
	w.hangUp(w.join(s, 0, 2))
	w.tick(time.Minute)
	if x := w.join(s, 0, 1); !errors.Is(x.refused, kintsugi.ErrFenced) {
		t.Errorf("incarnation 1 gets %v, want it fenced", x.refused)
	}
}

func TestTheFirstStepWaitsForTheWorkersThatAreMissing(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 2, Steps: 9, StartGrace: 10 * time.Second})
	x := w.join(s, 0, 1)
	w.gradient(x, 0)
	w.tick(10*time.Second - 1)
	if w.deliver(s); w.replica[0].applying != nil {
		t.Fatal("a step is decided before the grace is over")
	}
	w.tick(1)
	if w.deliver(s); w.replica[0].applying == nil {
		t.Fatal("no step is decided when the grace is over")
	}
}

func TestTheFirstStepStartsAtOnceWhenAllAreThere(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 2, Steps: 9, StartGrace: time.Hour})
	all := []*wire{w.join(s, 0, 1), w.join(s, 1, 1)}
	for _, x := range all {
		w.gradient(x, 0)
	}
	if w.deliver(s); w.replica[0].applying == nil {
		t.Fatal("no step is decided though everyone is there")
	}
}

func TestTicketsOfAnotherViewAreRefusedAndThoseOfTheDeadAreDropped(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 1, Steps: 9, Consistency: agg.Config{Quota: 1}})
	x := w.join(s, 0, 2)
	good := kintsugi.Ticket{
		Push: kintsugi.PushID{Line: 3, Slot: 0, Incarnation: 2}, Views: []kintsugi.ViewNumber{4}, Examples: 8, SquaredNorm: 1,
	}
	for _, c := range []struct {
		name    string
		change  func(*kintsugi.Ticket)
		answers int
	}{
		{"another view", func(k *kintsugi.Ticket) { k.Views = []kintsugi.ViewNumber{3} }, 1},
		{"another line", func(k *kintsugi.Ticket) { k.Push.Line = 2 }, 0},
		{"an earlier life", func(k *kintsugi.Ticket) { k.Push.Incarnation = 1 }, 0},
		{"a stranger", func(k *kintsugi.Ticket) { k.Push.Slot = 7 }, 0},
	} {
		k := good
		c.change(&k)
		x.down = nil
		s.HandleTicket(w.now, k)
		w.perform(s)
		if len(x.down) != c.answers {
			t.Errorf("%s: answered with %v, want %d answers", c.name, x.down, c.answers)
		}
		if w.deliver(s); w.replica[0].applying != nil {
			t.Fatalf("%s: the ticket is counted", c.name)
		}
	}
}

func TestAnswersUnderAnotherFenceDoNotCount(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 1, Steps: 9})
	w.gradient(w.join(s, 0, 1), 0)
	w.deliver(s)
	for _, m := range []kintsugi.ReplicaMessage{
		kintsugi.Stable{Shard: 0, Fence: 9, Step: 1}, // sent again under the fence of another conductor
		kintsugi.Stable{Shard: 0, Fence: 1, Step: 2},
		kintsugi.Stable{Shard: 1, Fence: 1, Step: 1}, // there is one shard
		kintsugi.Taken{Shard: 0, Fence: 9, Released: 7},
		kintsugi.Taken{Shard: 1, Fence: 1, Released: 7},
		kintsugi.MembersKnown{Shard: 0, Fence: 9, Change: 1},
		kintsugi.MembersKnown{Shard: 1, Fence: 1, Change: 1},
		kintsugi.Saved{Shard: 1},
	} {
		s.HandleReplica(w.now, m)
		if ready := s.Ready(); s.Released() != 0 || len(ready.ToShards)+len(ready.ToWorkers)+len(ready.Events) > 0 {
			t.Errorf("%T%+v leads to %+v", m, m, ready)
		}
	}
}

func TestAStepEventSaysWhatTheStepWas(t *testing.T) {
	w, s := start(t, conductor.Config{Slots: 2, Steps: 9, Consistency: agg.Config{Quota: 1, Late: agg.Apply, Staleness: 4}})
	a, b := w.join(s, 0, 1), w.join(s, 1, 1)
	start := w.now
	w.now = w.now.Add(3 * time.Second)
	w.gradient(a, 0)
	w.deliver(s)
	w.gradient(b, 0) // counted in the next step, one step late
	w.now = w.now.Add(time.Second)
	w.replica[0].apply()
	stable := w.replica[0].answers.up[0]
	w.replica[0].answers.up = nil
	s.HandleReplica(w.now, stable)
	events := s.Ready().Events
	if len(events) != 1 {
		t.Fatalf("got %d events, want one", len(events))
	}
	got := events[0].(kintsugi.StepEvent)
	if got.Line != 3 || got.Step != 1 || got.Loss != 2 || got.Workers != 2 || got.Quota != 1 || got.Staleness != 0 ||
		got.Examples != 8 || got.Norm != 2 || got.Reason != "fixed quota 1" || !slices.Equal(got.Counted, []kintsugi.PushID{{Line: 3, Incarnation: 1}}) {
		t.Errorf("got %+v", got)
	}
	if got.Wait != 3*time.Second || got.Apply != time.Second || got.Time != start.Add(4*time.Second) {
		t.Errorf("wait %v, apply %v, at %v; want 3s, 1s, %v", got.Wait, got.Apply, got.Time, start.Add(4*time.Second))
	}
}

func TestAStepThatIsTakenOverGetsItsLossFromRepeatedTickets(t *testing.T) {
	w := newWorld(t, conductor.Config{Line: 3, View: 4, Model: 0xabc, Slots: 2, Steps: 9}, []int{1, 1})
	conduct := func(fence kintsugi.Fence) *seat {
		s := w.newConductor(fence)
		w.open(s, 0)
		w.open(s, 1)
		w.deliver(s)
		return s
	}
	push := func(x *wire) {
		for _, r := range w.replica {
			r.push(kintsugi.PushID{Line: 3, Slot: x.slot, Incarnation: x.incarnation})
		}
		w.gradient(x, 0)
	}
	first := conduct(1)
	x, y := w.join(first, 0, 1), w.join(first, 1, 1)
	push(x)
	push(y)
	w.toShard(first.links[0]) // the other shard does not get it: the second conductor has to send it there
	w.replica[0].apply()
	second := conduct(2)
	x = w.join(second, 0, 1)
	push(x)
	push(x)
	w.replica[1].apply()
	second.HandleReplica(w.now, second.links[1].up[0])
	got := second.Ready().Events[0].(kintsugi.StepEvent)
	if got.Step != 1 || got.Loss != 2 || got.Examples != 8 || len(got.Counted) != 2 {
		t.Errorf("got step %d, loss %v of %d examples, counted %v; want step 1, loss 2 of 8, two pushes", got.Step, got.Loss, got.Examples, got.Counted)
	}
}
