package job

import (
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// Each flag of the learning rate's schedule and of weight decay reaches the schedule. What is not
// given has its default.
func TestTheScheduleIsWhatTheFlagsSay(t *testing.T) {
	for _, c := range []struct {
		flags string
		want  conductor.Schedule
	}{
		{"--model qp --steps 30 --learning-rate 0.5", conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.5, Decay: conductor.Decay{Form: conductor.Cosine}, Steps: 30}},
		{"--model qp --steps 30 --optimizer adamw --learning-rate 0.5 --momentum 0.75 --warmup 7 --decay linear:0.125,last=0.5 --betas 0,0.75 --epsilon 0.5 --weight-decay 0.25 --weight-decay-for matrices",
			conductor.Schedule{Rule: kintsugi.RuleAdamW, LearningRate: 0.5, Momentum: 0.75, Beta2: 0.75, Epsilon: 0.5, Warmup: 7, Decay: conductor.Decay{Form: conductor.Linear, Part: 0.125, Last: 0.5}, WeightDecay: 0.25, DecayMatrices: true, Steps: 30}},
	} {
		var s Settings
		f := NewFlagSet("train")
		s.Register(f)
		if err := f.Parse(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if _, err := Describe(&s); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Schedule(); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", c.flags, got, err, c.want)
		}
	}
}

// A pair may be a list in a file of settings, as it is in other programs.
func TestAPairMayBeAListInAFile(t *testing.T) {
	s, f := Settings{}, NewFlagSet("train")
	s.Register(f)
	if err := LoadText(f, "run.yaml", []byte("betas: [0.9, 0.95]\nrate: ['a=2', 'b=3']\nprogram: []\n")); err != nil {
		t.Fatal(err)
	}
	if s.Betas != "0.9,0.95" || !slices.Equal(s.Rates, []string{"a=2", "b=3"}) || len(s.Program) > 0 {
		t.Errorf("betas %q, rates %q, program %q", s.Betas, s.Rates, s.Program)
	}
}
