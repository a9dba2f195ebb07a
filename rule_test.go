package kintsugi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func TestRulesHaveNames(t *testing.T) {
	for name, want := range map[string]kintsugi.Rule{
		"sgd": kintsugi.RuleSGD, "momentum": kintsugi.RuleMomentum, "nesterov": kintsugi.RuleNesterov,
		"adam": kintsugi.RuleAdam, "adamw": kintsugi.RuleAdamW, "adagrad": kintsugi.RuleAdagrad, "lazyadam": kintsugi.RuleLazyAdam,
		"add": kintsugi.RuleAdd, "assign": kintsugi.RuleAssign,
	} {
		if got, err := kintsugi.ParseRule(name); got != want || err != nil {
			t.Errorf("ParseRule(%q) = %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"rmsprop", "", "Adam"} {
		if _, err := kintsugi.ParseRule(name); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "adamw") {
			t.Errorf("the rule %q gives %v, want a usage error that names the others", name, err)
		}
	}
}

func TestKernelsKnowEachRuleByTheSameNumber(t *testing.T) {
	known := 0
	for n := range 256 {
		rule, kernel := kintsugi.Rule(n), kernels.Rule(n)
		if rule.String() != kernel.String() || rule.States() != kernel.States() {
			t.Errorf("rule %d is %v with %d arrays of state here, and %v with %d in package kernels", n, rule, rule.States(), kernel, kernel.States())
		}
		parsed, err := kintsugi.ParseRule(rule.String())
		if (err == nil) != (rule.Check() == nil) || err == nil && parsed != rule {
			t.Errorf("rule %d has the name %v, which is that of rule %d (%v); it is known: %v", n, rule, parsed, err, rule.Check())
		}
		if err == nil {
			known++
		}
		if rule.Moments() && rule.States() != 2 {
			t.Errorf("%v keeps moments in %d arrays", rule, rule.States())
		}
	}
	if known != 9 {
		t.Errorf("%d rules are known, want 9", known)
	}
}
