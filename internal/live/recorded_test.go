package live

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// The models that the pushes of noisy lead to, as FNV-1a of their bits. They were recorded with the
// plain Go kernels. Every device of every build (AVX-512, AVX2, NEON, no cgo) must reproduce them.
var recorded = map[kintsugi.Rule]string{
	kintsugi.RuleSGD:      "d36308f2d5f5cb40",
	kintsugi.RuleMomentum: "5e67e828d607dac8",
	kintsugi.RuleNesterov: "0d87bd6fbecf96dc",
	kintsugi.RuleAdam:     "dc97a8656e1ca4ed",
	kintsugi.RuleAdamW:    "22878e1cd1427140",
	kintsugi.RuleAdagrad:  "04848b559b8e81bc",
}

func TestRecordedPushesGiveTheRecordedModel(t *testing.T) {
	for rule, want := range recorded {
		for i, d := range kernels.Devices() {
			cfg := base(t)
			cfg.Steps, cfg.SaveEvery = 20, 0
			cfg.Servers, cfg.Device, cfg.Threads = 1+i, d, 1+i
			cfg.Schedule = conductor.Schedule{Rule: rule, LearningRate: 0.01, Momentum: 0.9, WeightDecay: 0.001, Decay: conductor.Decay{Form: conductor.Cosine}, Steps: 20}
			h := fnv.New64a()
			for _, p := range run(t, cfg, nil) {
				var b [4]byte
				binary.LittleEndian.PutUint32(b[:], math.Float32bits(p))
				h.Write(b[:])
			}
			if got := fmt.Sprintf("%016x", h.Sum64()); got != want {
				t.Errorf("%v on %s with %d servers and %d threads: model %s, recorded is %s", rule, d.Name(), cfg.Servers, cfg.Threads, got, want)
			}
		}
	}
}
