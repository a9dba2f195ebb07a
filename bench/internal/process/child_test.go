package process

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// If a child process does not understand its arguments, that is a usage error of whoever gave them.
// If it fails, or panics, that is not one.
func TestAChildThatRefusesIsAUsageError(t *testing.T) {
	for script, usage := range map[string]bool{"exit 2": true, "exit 1": false, "exit 78": false, "echo panic: no; echo; echo 'goroutine 1 [running]:'; exit 2": false} {
		c, err := Start("/bin/sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Wait(t.Context())
		if exit := (*exec.ExitError)(nil); errors.Is(err, kintsugi.ErrUsage) != usage || !errors.As(err, &exit) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
