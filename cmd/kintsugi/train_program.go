package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// What train does with a program before the run begins.

// threadsVariable tells mathematical libraries, and PyTorch, how many threads to use.
const threadsVariable = "OMP_NUM_THREADS"

// prepareProgram prepares this process before the program of a run is started. A folder that the
// run cannot use is an error now, since the program may take minutes. Programs of workers on one
// machine share its processors, unless the user has set the variable. Libraries add in another order
// with another number of threads, so the program of this process gets the same number.
func (t *training) prepareProgram(resumed bool) error {
	if len(t.Program) == 0 {
		return nil
	}
	if err := absolute(&t.Out); err != nil {
		return err
	}
	if !resumed && t.Out != "" {
		if err := record.Usable(t.Out); err != nil {
			return err
		}
	}
	log, err := newLog(os.Stderr, t.LogLevel, onTerminal())
	if err != nil {
		return err
	}
	log.Info("asking the program what it trains, and for a first gradient", "program", strings.Join(t.Program, " ")) // this may take minutes
	if resumed {
		t.findDescribed(t.Out)
	}
	if os.Getenv(threadsVariable) != "" {
		return nil
	}
	return os.Setenv(threadsVariable, strconv.Itoa(max(1, runtime.NumCPU()/t.Workers)))
}

// tryProgram calls try for the program of a run, if it has one, and logs where its description will
// be stored.
func (t *training) tryProgram(ctx context.Context, p *problem, other *second) (warning string, err error) {
	if p.program == nil {
		return "", nil
	}
	defer other.close() // the run does not need it, and it may use as much memory as a worker's program
	t.Described = filepath.Join(t.Out, describedFile)
	if warning, err = p.program.try(ctx, &t.settings, other); err == nil {
		err = p.takeRates(&t.settings)
	}
	return warning, err
}
