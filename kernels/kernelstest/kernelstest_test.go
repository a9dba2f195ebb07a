package kernelstest

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func TestDevicesKeepTheContract(t *testing.T) {
	for _, d := range kernels.Devices() {
		t.Run(d.Name(), func(t *testing.T) { Run(t, d) })
	}
}

// Commits carry the numbers of kintsugi.Rule to the kernel, and checkpoints store them.
func TestRulesHaveTheNumbersOfTheMessages(t *testing.T) {
	for theirs, ours := range map[kintsugi.Rule]kernels.Rule{
		kintsugi.RuleSGD: kernels.SGD, kintsugi.RuleMomentum: kernels.Momentum, kintsugi.RuleNesterov: kernels.Nesterov,
		kintsugi.RuleAdam: kernels.Adam, kintsugi.RuleAdamW: kernels.AdamW, kintsugi.RuleAdd: kernels.Add, kintsugi.RuleAssign: kernels.Assign,
		kintsugi.RuleAdagrad: kernels.Adagrad, kintsugi.RuleLazyAdam: kernels.LazyAdam,
	} {
		if uint8(theirs) != uint8(ours) {
			t.Errorf("%v is %d here and %d in messages", ours, ours, theirs)
		}
	}
}
