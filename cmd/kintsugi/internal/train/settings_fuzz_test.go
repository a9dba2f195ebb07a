package train

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
)

// Any configuration file either sets flags or is a usage error. The settings that a run writes down
// read back as the same settings.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "steps: 5\n", "steps: many\n", "fault: [kill server/0 at step 5, slow worker/1 x2 from 3s]\n", "a: &x [*x]\n",
		"- steps\n", "steps: {a: b}\n", "model: !!binary aGk=\n", "? [a]\n: b\n", "learning-rate: 1e-3\nlearning-rate: 2\n", "config: self.yaml\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first := &Training{}
		first.Register(job.NewFlagSet("fuzz"))
		if err := job.LoadText(first.Flags, "run.yaml", []byte(text)); err != nil {
			if !errors.Is(err, kintsugi.ErrUsage) {
				t.Fatalf("%q: %v is no usage error", text, err)
			}
			return
		}
		written := job.Dump(first.Flags)
		second := &Training{}
		second.Register(job.NewFlagSet("fuzz"))
		if err := job.LoadText(second.Flags, "run.yaml", written); err != nil {
			t.Fatalf("%q was read, but not what was written of it, %q: %v", text, written, err)
		}
		if again := job.Dump(second.Flags); string(again) != string(written) {
			t.Fatalf("%q is written as %q and, read again, as %q", text, written, again)
		}
	})
}
