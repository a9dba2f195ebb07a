package measure

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

// A run that train refuses shows nothing.
func TestTrainTakesWhateverIsDrawn(t *testing.T) {
	inputs := make(map[string]string) // by model; with one, Describe need not open the data
	for n := range 2000 {
		d := bench.Draw(1, n)
		args := d.Settings
		for _, f := range d.Faults {
			args = append(args, "--fault", f)
		}
		x, f := &train.Training{}, job.NewFlagSet("train")
		x.Register(f)
		err := f.Parse(args)
		if err == nil {
			err = x.Check()
		}
		if x.Input = inputs[x.Model]; err == nil {
			_, err = job.Describe(&x.Settings)
			inputs[x.Model] = x.Input
		}
		if err == nil {
			_, err = x.Counting()
		}
		if err != nil {
			t.Errorf("run %d: %v: train %s", n, err, d)
		}
	}
}
