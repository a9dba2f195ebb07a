package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// interrupted is the exit status of a run that was asked to end.
const interrupted = 130

// TrainFor runs kintsugi train with the given flags in a temporary folder, asks it to end after the
// given time, and returns its record. The flags must ask for more steps than it can make in that
// time.
func TrainFor(ctx context.Context, binary string, long time.Duration, flags []string) (*record.Run, error) {
	dir, err := os.MkdirTemp("", "kintsugi-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "run")
	c, err := StartTrain(binary, out, append([]string{"--steps", "100000000", "--eval-every", "100000000"}, flags...))
	if err != nil {
		return nil, err
	}
	select {
	case <-c.Ended:
	case <-ctx.Done():
	case <-time.After(long):
		c.Signal(syscall.SIGINT)
	}
	until, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = c.Wait(until)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != interrupted {
		if err == nil {
			err = errors.New("it has made all steps")
		}
		return nil, fmt.Errorf("%s did not end as it was asked to: %w\n%s", c, err, c.Printed.Bytes())
	}
	return record.ReadRun(out)
}
