package train

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

func TestOnlyFaultsThatAreNotOverRemainForAResumedRun(t *testing.T) {
	texts := []string{
		"kill server/0 at step 5", "kill server/0 at step 50", "pause server/1 at step 6 for 1s",
		"slow worker/0 x2 from step 3", "slow worker/1 x2 from step 3 to step 9",
	}
	faults, err := launch.ParseFaults(texts)
	if err != nil {
		t.Fatal(err)
	}
	earlier := []record.Fault{
		{Action: "slow", Fault: texts[3]}, {Action: "slow", Fault: texts[4]}, {Action: "kill", Fault: texts[0]},
		{Action: "pause", Fault: texts[2]}, {Action: "unslow", Fault: texts[4]},
	}
	var left []string
	for _, f := range remaining(faults, earlier) {
		left = append(left, f.String())
	}
	if want := []string{texts[1], texts[3]}; !slices.Equal(left, want) {
		t.Errorf("left are %q; want %q", left, want)
	}
}
