package virtual

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

func training(t *testing.T, preset string, workers int, steps kintsugi.Step) Training {
	t.Helper()
	c, err := agg.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	times, err := ParseTimes("exp:0.5", 1)
	if err != nil {
		t.Fatal(err)
	}
	return Training{
		Seed: 1, Workers: workers, Consistency: c, Steps: steps, Times: times, Problem: NewNoisy(16, 0.3), Apply: 0.01,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.2},
	}
}

// Virtual time would go on for ever, and nobody would notice.
func TestATrainingThatCannotGoOnEnds(t *testing.T) {
	race.Skip(t)
	for _, preset := range []string{"bsp", "backup:2", "async", "dbw"} {
		cfg := training(t, preset, 16, 200)
		cfg.Schedule.LearningRate = 1e9
		if r, err := Train(cfg); !errors.Is(err, kintsugi.ErrNotFinite) {
			t.Errorf("%s diverges: %d steps, %v; want an end that says so", preset, r.Steps, err)
		}
	}
	cfg := training(t, "dbw", 16, 200)
	cfg.Lifetime, cfg.Rebirth = 0.001, 30
	if r, err := Train(cfg); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("lives of a millisecond: %d steps, %v; want an end that says so", r.Steps, err)
	}
}

func TestEveryPresetTrainsUnderVirtualTime(t *testing.T) {
	race.Skip(t)
	for _, preset := range []string{
		"bsp", "backup:2", "backup:2,wait", "backup:2,pull", "async:constant", "async:constant,discount,credit=2", "ssp:2,constant", "rennala:6",
		"dbw", "dbw:wait", "dbw:pull", "dbw:wait,knee=8", "dbw:joint", "dbw:paper", "bdbw", "adasync:2",
	} {
		for _, rule := range []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleAdam} {
			cfg := training(t, preset, 8, 300)
			cfg.Schedule = conductor.Schedule{Rule: rule, LearningRate: map[kintsugi.Rule]float64{1: 0.05, 2: 0.01, 4: 0.01}[rule], Momentum: 0.8}
			cfg.Lifetime, cfg.Rebirth = 40, 3
			begin := cfg.Problem.Loss(slices.Repeat([]float32{1}, 16))
			r, err := Train(cfg)
			if err != nil || r.Steps != 300 {
				t.Errorf("%s, %v: %d steps, %v", preset, rule, r.Steps, err)
				continue
			}
			if end := cfg.Problem.Loss(r.Params); !(end < 0.25*begin) {
				t.Errorf("%s, %v: the loss goes from %v to %v", preset, rule, begin, end)
			}
			if r.Deaths == 0 {
				t.Errorf("%s, %v: nobody died in %v s", preset, rule, r.Seconds)
			}
		}
	}
}

// blindly is a problem whose loss is sometimes NaN and sometimes infinite. Its gradients are
// unchanged.
type blindly struct{ Problem }

func (b blindly) Gradient(params, grads []float32, rng *rand.Rand) float64 {
	loss := b.Problem.Gradient(params, grads, rng)
	switch rng.IntN(4) {
	case 0:
		return math.NaN()
	case 1:
		return math.Inf(1)
	}
	return loss
}

// Losses steer some controllers. A loss of NaN stops none of them, nor does a single worker, nor do
// times in which no worker is there.
func TestControllersOutliveLossesThatAreNoNumbersAndAbsence(t *testing.T) {
	race.Skip(t)
	for _, preset := range []string{"dbw", "dbw:wait", "dbw:joint", "dbw:paper", "bdbw", "adasync:2"} {
		for _, n := range []int{1, 3} {
			cfg := training(t, preset, n, 200)
			cfg.Problem = blindly{cfg.Problem}
			cfg.Lifetime, cfg.Rebirth = 20, 15 // in seconds; a step takes about one
			alone := 0
			cfg.Each = func(e kintsugi.StepEvent, _ []float32) bool {
				if e.Quota < 1 || e.Quota > uint32(n) || len(e.Counted) != int(e.Quota) {
					t.Fatalf("%s, %d workers: step %d has a quota of %d and counts %d", preset, n, e.Step, e.Quota, len(e.Counted))
				}
				if e.Workers == 1 {
					alone++
				}
				return true
			}
			r, err := Train(cfg)
			if err != nil || r.Steps != 200 || r.Deaths < 3 || alone == 0 {
				t.Errorf("%s, %d workers: %d steps, %d deaths, %d steps of one worker (%v)", preset, n, r.Steps, r.Deaths, alone, err)
			}
		}
	}
}

func equalBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// If all take equally long, then when the first gradient is finished all others are too, but not
// yet reported. Their parts are complete, and a step that waits for one gradient has the bits of a
// step of all.
func TestAPartOfAGradientThatIsAsGoodAsDoneIsAllOfIt(t *testing.T) {
	race.Skip(t)
	set, err := data.Open("digits", "")
	if err != nil {
		t.Fatal(err)
	}
	model, err := NewSoftmax(set, 500, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	free := 0.0
	run := func(preset string, anytime *float64) Trained {
		cfg := training(t, preset, 6, 20)
		cfg.Problem, cfg.Ranked, cfg.Anytime = model, true, anytime
		if cfg.Times, err = ParseTimes("constant", 1); err != nil {
			t.Fatal(err)
		}
		r, err := Train(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all, one, parts := run("bsp", nil), run("backup:5", nil), run("backup:5", &free)
	if !slices.EqualFunc(all.Params, parts.Params, equalBits) || slices.EqualFunc(all.Params, one.Params, equalBits) {
		t.Error("a step of one gradient and whole parts is not a step of all")
	}
	grads, want := make([]float32, model.Values()), make([]float32, model.Values())
	if share := model.Part(all.Params, grads, rand.New(rand.NewPCG(1, 2)), 0.6); share != 0.5 { // 4 of 8 examples; the fifth is not finished
		t.Errorf("six tenths of 8 examples are a share of %v, want 0.5", share)
	}
	model.WithBatch(4).Gradient(all.Params, want, rand.New(rand.NewPCG(1, 2)))
	if !slices.EqualFunc(grads, want, equalBits) {
		t.Error("half of a batch does not have the gradient of its first half")
	}
	if share := model.Part(all.Params, grads, rand.New(rand.NewPCG(1, 2)), 0.1); share != 0 {
		t.Errorf("less than an example is a share of %v", share)
	}
}

func TestATrainingReplaysToTheBit(t *testing.T) {
	race.Skip(t)
	run := func() ([]kintsugi.StepEvent, Trained) {
		cfg := training(t, "dbw:wait", 16, 200)
		cfg.Lifetime, cfg.Rebirth = 50, 2
		var events []kintsugi.StepEvent
		cfg.Each = func(e kintsugi.StepEvent, _ []float32) bool { events = append(events, e); return true }
		r, err := Train(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return events, r
	}
	e1, r1 := run()
	e2, r2 := run()
	for i := range e1 {
		if e1[i].Reason != e2[i].Reason || !slices.Equal(e1[i].Counted, e2[i].Counted) || !e1[i].Time.Equal(e2[i].Time) {
			t.Fatalf("step %d: %+v and then %+v", i, e1[i], e2[i])
		}
	}
	for i, x := range r1.Params {
		if math.Float32bits(x) != math.Float32bits(r2.Params[i]) {
			t.Fatalf("parameter %d is %v and then %v", i, x, r2.Params[i])
		}
	}
}

// If all workers take the same time, dbw waits for all, and takes no longer than bsp.
func TestDBWWithoutStragglersIsBSP(t *testing.T) {
	race.Skip(t)
	seconds := func(preset string) float64 {
		cfg := training(t, preset, 16, 200)
		cfg.Times, _ = ParseTimes("constant", 1)
		r, err := Train(cfg)
		if err != nil || r.Steps != 200 {
			t.Fatalf("%s: %d steps, %v", preset, r.Steps, err)
		}
		return r.Seconds
	}
	if dbw, bsp := seconds("dbw:wait"), seconds("bsp:wait"); dbw > bsp*1.001 {
		t.Errorf("200 steps take %v s, those of bsp %v s", dbw, bsp)
	}
}

// Half of the workers become five times slower. Within some steps dbw goes on with the others, and
// it takes the slow ones back when they recover.
func TestDBWFollowsASlowdown(t *testing.T) {
	race.Skip(t)
	for _, preset := range []string{"dbw", "dbw:wait"} {
		cfg := training(t, preset, 16, 100000)
		cfg.Times, _ = ParseTimes("exp:0.05", 1)
		cfg.Problem = NewNoisy(16, 2)
		cfg.Schedule.LearningRate = 0.02
		cfg.Slow = []Slowdown{{Factor: 5, Last: 7, From: 100, Until: 200}}
		var quotas [3][]int
		cfg.Each = func(e kintsugi.StepEvent, _ []float32) bool {
			at := e.Time.Sub(Epoch()).Seconds()
			switch {
			case at > 60 && at < 100:
				quotas[0] = append(quotas[0], int(e.Quota))
			case at > 120 && at < 200:
				quotas[1] = append(quotas[1], int(e.Quota))
			case at > 400:
				quotas[2] = append(quotas[2], int(e.Quota))
			}
			return at < 450
		}
		if _, err := Train(cfg); err != nil {
			t.Fatal(err)
		}
		var middle [3]int
		for i, q := range quotas {
			slices.Sort(q)
			middle[i] = q[len(q)/2]
		}
		if middle[0] < 9 || middle[1] > 8 || middle[2] < middle[0] {
			t.Errorf("%s: median quotas before, during and after: %v", preset, middle)
		}
	}
}

func TestTimesHaveTheirMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, spec := range []string{"constant", "exp:0", "exp:0.5", "exp:1", "pareto:3", "lognormal:0.5"} {
		times, err := ParseTimes(spec, 2)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i := range 200000 {
			x := times.of(0, i, 0, rng)
			if !(x > 0) {
				t.Fatalf("%s draws %v", spec, x)
			}
			sum += x
		}
		if mean := sum / 200000; math.Abs(mean-2) > 0.03 {
			t.Errorf("%s has the mean %v, want 2", spec, mean)
		}
	}
	for _, spec := range []string{"", "exp", "exp:2", "exp:-1", "pareto:1", "pareto:x", "normal:1", "lognormal:NaN"} {
		if _, err := ParseTimes(spec, 1); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestRecordedTimesAreRepeated(t *testing.T) {
	times, err := ReadTimes(strings.NewReader(`{"slot":0,"seconds":1}
{"slot":1,"seconds":5}

{"slot":0,"seconds":2}
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1, 2, 1, 2} {
		if got := times.of(2, i, 0, nil); got != want {
			t.Errorf("gradient %d of slot 2 takes %v, want %v", i, got, want)
		}
	}
	for _, bad := range []string{"", "{", `{"slot":1,"seconds":1}`, `{"seconds":1}`, `{"slot":0,"seconds":0}`, `{"slot":-1,"seconds":1}`, "[1]", `{"slot":0,"seconds":1}
` + strings.Repeat(" ", longestLine)} {
		if _, err := ReadTimes(strings.NewReader(bad)); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A gradient that was given up would have taken longer. It is given the time that longer gradients
// of the same worker took, in turn.
func TestAGradientThatWasGivenUpTakesWhatALongerOneTook(t *testing.T) {
	times, err := ReadTimes(strings.NewReader(`{"slot":0,"seconds":1,"given_up":true}
{"slot":0,"seconds":5}
{"slot":0,"seconds":0.5}
{"slot":0,"seconds":2,"given_up":true}
{"slot":0,"seconds":7}
{"slot":0,"seconds":2,"given_up":true}
{"slot":1,"seconds":9}
{"slot":1,"seconds":9.5,"given_up":true}
{"slot":2,"seconds":3,"given_up":true}
`))
	if err != nil {
		t.Fatal(err)
	}
	for slot, want := range [][]float64{{5, 5, 0.5, 7, 7, 5}, {9, 9.5}, {3}} {
		for i, want := range want {
			if got := times.of(slot, i, 0, nil); got != want {
				t.Errorf("gradient %d of slot %d takes %v, want %v", i, slot, got, want)
			}
		}
	}
	if want := "recorded (of 2 gradients it is not known how long they would have taken)"; times.String() != want {
		t.Errorf("the times are %q, want %q", times, want)
	}
}

func TestSlowdownsAreRead(t *testing.T) {
	for text, want := range map[string]Slowdown{
		"x5 for half from 100s":            {Factor: 5, Last: 7, From: 100},
		"x1.5 for 25% from 1.5s until 60s": {Factor: 1.5, Last: 3, From: 1.5, Until: 60},
		"x2 for all from 0s":               {Factor: 2, Last: 15},
	} {
		if got, err := ParseSlowdown(text, 16); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "x5", "5 for half from 1s", "x5 for some from 1s", "x5 for half from 1", "x0 for half from 1s", "x5 for 120% from 1s", "x5 for half from 1s until", "x5 for half from 10s until 5s"} {
		if _, err := ParseSlowdown(bad, 16); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The gradient of the whole set is the mean of the gradients of its batches, and the derivative of
// the loss.
func TestSoftmaxGradients(t *testing.T) {
	race.Skip(t)
	s, err := NewSoftmax(data.Digits(1, 60, 1).Set(), 60, 7, 4000)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	params, full, batch := make([]float32, s.Values()), make([]float32, s.Values()), make([]float32, s.Values())
	for i := range params {
		params[i] = float32(rng.NormFloat64())
	}
	loss := s.Full(params, full)
	if math.Abs(loss-s.Loss(params)) > 1e-9 {
		t.Errorf("loss %v beside the gradient, %v alone", loss, s.Loss(params))
	}
	s.Gradient(params, batch, rng)
	for i, g := range full {
		if math.Abs(float64(g-batch[i])) > 0.05 {
			t.Errorf("component %d: %v of all, %v of a large batch", i, g, batch[i])
		}
		if i%5 > 0 {
			continue
		}
		const step = 1e-2
		p := slices.Clone(params)
		p[i] += step
		up := s.Loss(p)
		p[i] -= 2 * step
		if d := (up - s.Loss(p)) / (2 * step); math.Abs(d-float64(g)) > 1e-3 {
			t.Errorf("component %d: %v, by differences %v", i, g, d)
		}
	}
}

// A step that counts half of the knee's gradients has half of the learning rate.
func TestTheKneeLowersTheRateOfASmallStep(t *testing.T) {
	for preset, want := range map[string]float32{"backup:2": 0.5, "backup:2,knee=4": 0.75, "backup:2,knee=2": 0.5} {
		cfg := training(t, preset, 4, 1)
		cfg.Problem, cfg.Schedule.LearningRate = Noisy{Lambda: []float32{1}}, 0.5
		r, err := Train(cfg)
		if err != nil || r.Params[0] != want {
			t.Errorf("%s: the parameter goes from 1 to %v (%v), want %v", preset, r.Params, err, want)
		}
	}
}

// A gradient that takes months is over at once, including the conductor's patience, and virtual
// time does not exceed what a clock can express.
func TestVirtualTimeIsLongAndEnds(t *testing.T) {
	train := func(mean float64, slow []Slowdown, lifetime, rebirth float64) (Trained, error) {
		times, err := ParseTimes("exp:0.5", mean)
		if err != nil {
			t.Fatal(err)
		}
		consistency, err := agg.Preset("dbw")
		if err != nil {
			t.Fatal(err)
		}
		return Train(Training{
			Seed: 1, Workers: 4, Consistency: consistency, Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.1}, Steps: 20, Problem: NewNoisy(4, 0.1),
			Times: times, Slow: slow, Apply: 0.01, Lifetime: lifetime, Rebirth: rebirth,
		})
	}
	const month = 30 * 86400
	if r, err := train(month, nil, 0, 0); err != nil || r.Steps != 20 || r.Seconds < 5*month {
		t.Errorf("%d steps in %v seconds, %v", r.Steps, r.Seconds, err)
	}
	for name, f := range map[string]func() (Trained, error){
		"gradients":  func() (Trained, error) { return train(1e300, nil, 0, 0) },
		"a slowdown": func() (Trained, error) { return train(1, []Slowdown{{Factor: math.MaxFloat64, Last: 3}}, 0, 0) },
		"rebirth":    func() (Trained, error) { return train(month, nil, month/100, 1e10) },
	} {
		if r, err := f(); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s beyond all time: %d steps, %v", name, r.Steps, err)
		}
	}
}
