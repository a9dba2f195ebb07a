package job

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// What servers make of local steps depends on the optimizer of these, and on whether late gradients
// count, unless --outer says it.
func TestServersMakeUpForMomentumUnlessLateGradientsCount(t *testing.T) {
	for _, x := range []struct {
		optimizer, consistency, outer string
		want                          kintsugi.Rule
	}{
		{"momentum", "bsp", "", kintsugi.RuleMomentum},
		{"nesterov", "backup:1", "auto", kintsugi.RuleMomentum},
		{"momentum", "dbw", "", kintsugi.RuleMomentum},
		{"momentum", "async", "", kintsugi.RuleSGD},
		{"momentum", "ssp:2", "auto", kintsugi.RuleSGD},
		{"momentum", "backup:1,staleness=1", "", kintsugi.RuleSGD},
		{"momentum", "async", "nesterov", kintsugi.RuleNesterov},
		{"adam", "bsp", "", kintsugi.RuleSGD},
		{"sgd", "bsp", "auto", kintsugi.RuleSGD},
	} {
		s := Settings{}
		s.Register(NewFlagSet("train"))
		s.Model, s.Optimizer, s.Consistency, s.LocalSteps, s.Outer = "qp", x.optimizer, x.consistency, 8, x.outer
		if _, err := Describe(&s); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Schedule(); err != nil || got.Rule != x.want {
			t.Errorf("%+v: rule %d, %v", x, got.Rule, err)
		}
	}
}

// So are the drops that a model suggests; those that the user asks for count exchanges.
func TestSuggestedDropsComeAfterAsManyGradients(t *testing.T) {
	for _, x := range []struct{ said, want string }{{"", "drop:0.1@75,100"}, {"drop:0.1@300", "drop:0.1@300"}, {"linear", "linear"}} {
		s := Settings{}
		s.Register(NewFlagSet("train"))
		s.LocalSteps, s.Decay = 4, x.said
		if err := (&Problem{Desc: &model.Description{}}).suggest(&s, model.Defaults{Decay: "drop:0.1@300,400", LearningRate: 1}); err != nil || s.Decay != x.want {
			t.Errorf("%q becomes %q, %v, want %q", x.said, s.Decay, err, x.want)
		}
	}
}

// A model's own steps and warm-up are as many gradients with local steps as without.
func TestSuggestedStepsAreAsManyGradients(t *testing.T) {
	at := func(local int) Settings {
		s := Settings{}
		s.Register(NewFlagSet("train"))
		s.Model, s.Input, s.LocalSteps = "charlm", "64x65", local
		if _, err := Describe(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, local := range []int{2, 7, 16} {
		one, some := at(1), at(local)
		if n := some.Steps * uint64(local); n < one.Steps || n >= one.Steps+uint64(local) {
			t.Errorf("%d exchanges of %d local steps, and %d steps without", some.Steps, local, one.Steps)
		}
		if n := some.Warmup * local; n < one.Warmup || n >= one.Warmup+local {
			t.Errorf("a warm-up of %d exchanges of %d local steps, and %d steps without", some.Warmup, local, one.Warmup)
		}
	}
}
