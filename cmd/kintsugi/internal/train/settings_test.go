package train

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
)

// The file of a run is for all of its processes. A setting of train that a role does not have is not
// taken for a mistake in it.
func TestEveryFlagOfTrainMayBeInAFile(t *testing.T) {
	train := &Training{}
	train.Register(job.NewFlagSet("train"))
	train.Flags.VisitAll(func(f *pflag.Flag) {
		if !job.OfTrain(f.Name) {
			t.Errorf("--%s is a flag of train, and a role whose --config has it would refuse it", f.Name)
		}
	})
	for _, name := range append(slices.Clone(job.TrainFlags), "model") {
		if train.Flags.Lookup(name) == nil {
			t.Errorf("--%s is no flag of train", name)
		}
	}
}
