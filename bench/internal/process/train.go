package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Train runs kintsugi train with the given flags in a temporary folder, and returns its record.
func Train(ctx context.Context, binary string, flags []string) (*record.Run, error) {
	return TrainAnd(ctx, binary, flags, nil)
}

// TrainAnd is Train, but calls look with the ended process and the folder of the run before
// it removes the folder.
func TrainAnd(ctx context.Context, binary string, flags []string, look func(dir string, process *os.ProcessState) error) (*record.Run, error) {
	dir, err := os.MkdirTemp("", "kintsugi-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "run")
	c, err := StartTrain(binary, out, flags)
	if err != nil {
		return nil, err
	}
	if err := c.Wait(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", c, err, c.Printed.Bytes())
	}
	if look != nil {
		if err := look(out, c.Cmd.ProcessState); err != nil {
			return nil, err
		}
	}
	return record.ReadRun(out)
}

// StartTrain starts kintsugi train with the given flags and the folder out.
func StartTrain(binary, out string, flags []string) (*Child, error) {
	return Start(binary, append([]string{"train", "--out", out, "--log-level", "error"}, flags...)...)
}

// StuckAfter is the limit on the time of a run. An undisturbed run takes a few seconds: one that
// has not ended by then never will.
const StuckAfter = 5 * time.Minute

// ErrStuck is the cause of the end of a context that has ended after StuckAfter.
var ErrStuck = fmt.Errorf("the run is stuck: it has not ended within %v", StuckAfter)

// Replicated splits chain:R and gold:R into the recovery and R. Other recoveries are returned
// unchanged, with 0.
func Replicated(recovery string) (name string, replicas int) {
	name, option, _ := strings.Cut(recovery, ":")
	if n, err := strconv.Atoi(option); err == nil && n > 0 && (name == "chain" || name == "gold") {
		return name, n
	}
	return recovery, 0
}
