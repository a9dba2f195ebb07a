package train

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// What train does with a program before the run begins.

// PrepareProgram prepares this process before the program of a run is started. A folder that the
// run cannot use is an error now, since the program may take minutes. Programs of workers on one
// machine share its processors, unless the user has set the variable. Libraries add in another order
// with another number of threads, so the program of this process gets the same number.
func (t *Training) PrepareProgram(resumed bool) error {
	if len(t.Program) == 0 {
		return nil
	}
	if err := Absolute(&t.Out); err != nil {
		return err
	}
	if !resumed && t.Out != "" {
		if err := record.Usable(t.Out); err != nil {
			return err
		}
	}
	log, err := cli.NewLog(cli.Stderr, t.LogLevel, cli.OnTerminal())
	if err != nil {
		return err
	}
	log.Info("asking the program what it trains, and for a first gradient", "program", strings.Join(t.Program, " ")) // this may take minutes
	if resumed {
		t.FindDescribed(t.Out)
	}
	return job.LimitThreads(job.Cores() / t.Workers)
}

// tryProgram calls Try for the program of a run, if it has one, and logs where its description will
// be stored.
func (t *Training) tryProgram(ctx context.Context, p *job.Problem, other *job.Second) (warning string, err error) {
	if p.Program == nil {
		return "", nil
	}
	defer other.Close() // the run does not need it, and it may use as much memory as a worker's program
	t.Described = filepath.Join(t.Out, job.DescribedFile)
	if warning, err = p.Program.Try(ctx, &t.Settings, other); err == nil {
		err = p.TakeRates(&t.Settings)
	}
	return warning, err
}
