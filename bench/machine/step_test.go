package machine

import (
	"io"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/worker"
)

func TestPartsOfAStepAddUpToIt(t *testing.T) {
	cfg := StepConfig{Workers: 2, Servers: 2, Values: 1 << 18, Wires: []worker.Wire{worker.WireGRPC, worker.WireAuto}, Steps: 4, Rounds: 1, Progress: io.Discard}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	rows, err := FullStep(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2*4 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	for i := 0; i < len(rows); i += 4 {
		bound := 0.0
		whole := rows[i+3]
		for _, part := range rows[i : i+3] { // the first step may be over before it is observed
			if part.Steps < 3 || part.Steps > 4 || part.SecondsLow < 0 || part.Seconds > whole.Seconds || part.SecondsHigh > whole.SecondsHigh {
				t.Errorf("%s over %s: %+v, of %+v", part.Name, part.Wire, part, whole)
			}
			bound += part.BoundSeconds
		}
		if !(whole.Seconds > 0) {
			t.Errorf("a step takes no time: %+v", whole)
		}
		if d := whole.BoundSeconds - bound; d > 1e-9 || d < -1e-9 {
			t.Errorf("the bound of a step is %v, of its parts %v", whole.BoundSeconds, bound)
		}
		if strings.Count(whole.Strip, "|") != 2*(cfg.Workers+cfg.Servers) || !strings.ContainsAny(whole.Strip, "+#") {
			t.Errorf("the timeline is\n%s", whole.Strip)
		}
	}
}
