package kintsugi

import "fmt"

// Rule says what a step does with the scaled sum of its gradients. The values are stored in
// checkpoints and sent between processes: never renumber.
type Rule uint8

// The rules.
const (
	RuleSGD      Rule = 1
	RuleMomentum Rule = 2
	RuleNesterov Rule = 3
	RuleAdam     Rule = 4
	RuleAdamW    Rule = 5
	RuleAdd      Rule = 6 // parameters += sum: for counts; exact codecs only
	RuleAssign   Rule = 7 // a chunk becomes that of the last push that names a value of it; without such a push it stays
	RuleAdagrad  Rule = 8
	RuleLazyAdam Rule = 9 // as RuleAdam, but what has no gradient keeps its value and its state
)

// What each rule is called, and what it keeps.
var rules = [...]struct {
	name   string
	states int
}{
	RuleSGD:      {"sgd", 0},
	RuleMomentum: {"momentum", 1},
	RuleNesterov: {"nesterov", 1},
	RuleAdam:     {"adam", 2},
	RuleAdamW:    {"adamw", 2},
	RuleAdd:      {"add", 0},
	RuleAssign:   {"assign", 0},
	RuleAdagrad:  {"adagrad", 1},
	RuleLazyAdam: {"lazyadam", 2},
}

// ParseRule returns the rule with the given name; "add" and "assign" are for models that compute
// their own steps. An unknown name is a usage error.
func ParseRule(name string) (Rule, error) {
	for rule, r := range rules {
		if name != "" && r.name == name {
			return Rule(rule), nil
		}
	}
	return 0, fmt.Errorf("%w: optimizer %q is unknown; use sgd, momentum, nesterov, adam, adamw, lazyadam or adagrad", ErrUsage, name)
}

// Check returns an error if r is none of the rules: a number that was read may be any.
func (r Rule) Check() error {
	if !r.known() {
		return fmt.Errorf("rule %d is none of the rules of a step", uint8(r))
	}
	return nil
}

func (r Rule) known() bool { return int(r) < len(rules) && rules[r].name != "" }

// String returns the rule's name in lower case, such as "adamw".
func (r Rule) String() string {
	if !r.known() {
		return fmt.Sprintf("rule %d", uint8(r))
	}
	return rules[r].name
}

// States returns how many values of optimizer state the rule keeps for each parameter: the velocity
// or the sum of squares (1), or the two moments (2). Of an unknown rule there are none.
func (r Rule) States() int {
	if !r.known() {
		return 0
	}
	return rules[r].states
}

// Moments reports whether the rule is one of the Adams: it keeps an average of the gradients, by β₁,
// and after that one of their squares, by β₂.
func (r Rule) Moments() bool { return r == RuleAdam || r == RuleAdamW || r == RuleLazyAdam }

// Optimizer holds the rule of a step and its scalars. The conductor computes all of them and rounds
// each once to float32, so that every replica uses the same bits.
type Optimizer struct {
	Rule         Rule
	LearningRate float32
	Momentum     float32
	Beta1, Beta2 float32
	Epsilon      float32
	WeightDecay  float32
	Correction1  float32 // 1 − β₁ᵗ
	Correction2  float32 // 1 − β₂ᵗ

	// DecayMatrices applies WeightDecay only to tensors of two or more dimensions. Biases and the
	// scales of norms have one dimension and are not drawn to zero.
	DecayMatrices bool
}

// WeightDecayOf returns the weight decay that applies to the values of tensor t.
func (o Optimizer) WeightDecayOf(t Tensor) float32 {
	if o.DecayMatrices && len(t.Shape) < 2 {
		return 0
	}
	return o.WeightDecay
}
