package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// interrupted is the exit status of a run that was asked to end.
const interrupted = 130

// runFor runs kintsugi train with the given flags in a folder of its own, asks it to end after that long, and returns what it recorded. The
// run must have more steps than it can make until then.
func runFor(ctx context.Context, binary string, long time.Duration, flags []string) (*record.Run, error) {
	dir, err := os.MkdirTemp("", "kintsugi-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "run")
	args := append([]string{"train", "--out", out, "--log-level", "error", "--steps", "100000000", "--eval-every", "100000000"}, flags...)
	until, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	cmd := exec.CommandContext(until, binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if until.Err() == nil || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != interrupted || err != nil && !errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s %s did not end as it was asked to: %w\n%s", binary, strings.Join(args, " "), err, text)
	}
	return record.ReadRun(out)
}
