// Package drawn asks whether settings and faults break a promise together that nobody has thought
// of together. Runs have settings and faults that are drawn, and some are killed as a whole and
// resumed. For half of these, servers and recovery are drawn anew then. The claim that could be
// false: each makes all its steps, its checkpoint is whole, and it keeps what its own settings
// promise. In particular it ends with the parameters of the undisturbed run, to the last bit, if
// every step has counted the same gradients. Few runs that are drawn from everything must, so that
// there is a space in which almost all do.
package drawn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Config configures Run.
type Config struct {
	Space
	Runs     int
	From     int // number of the first run
	Binary   string
	TLS      string // folder of certificates with which the processes of runs prove who they are; empty: they do not
	Store    Store  // nil: checkpoints are kept in the folders of runs
	Progress io.Writer
}

// Store opens a part of a store of checkpoints, such as a bucket, in which runs get a folder each.
// It can be used until ctx ends.
type Store func(ctx context.Context, part string) (at Place, err error)

// Place is a part of a store.
type Place struct {
	Flag string // its name, as --store takes it
	FS   vfs.FS
	Dir  string
}

// Row is one run.
type Row struct {
	Name        string        `json:"name"`
	Seed        uint64        `json:"seed"`
	Number      int           `json:"run"`
	Flags       string        `json:"flags"`
	Interrupted record.Number `json:"interrupted_seconds"` // after which the whole run was killed; unknown: it was not
	Failures    int           `json:"failures"`
	Longest     record.Number `json:"longest_recovery_seconds"` // from a failure to the next step; unknown: no step came after one
	Lost        uint64        `json:"lost_steps"`
	Bits        string        `json:"parameters"`      // checksum over all bits of the final parameters
	CalmBits    string        `json:"calm_parameters"` // of the undisturbed run; empty: they may be others
	Broken      []string      `json:"broken_promises"`
	Kept        string        `json:"folder,omitempty"` // the run's folder, if a promise was broken
}

// result is what is known of a run that has ended.
type result struct {
	summary     record.Summary
	interrupted bool
	resumed     bool     // with what is drawn for that, and not begun anew
	damaged     int      // places in its checkpoint
	crashes     []string // of its processes, which were no faults of the run
	bits        string
}

// Run makes the runs, one after the other. A run that breaks a promise keeps its folder; that
// is not an error.
func Run(ctx context.Context, cfg Config) ([]Row, error) {
	var rows []Row
	for n := cfg.From; n < cfg.From+cfg.Runs; n++ {
		row, err := cfg.one(ctx, n)
		if err != nil {
			return rows, fmt.Errorf("run %d of seed %d: %w", n, cfg.Seed, err)
		}
		said := "ok"
		if len(row.Broken) > 0 {
			said = strings.Join(row.Broken, "; ") + ": see " + row.Kept
		}
		next := ""
		if row.Longest.Known() {
			next = fmt.Sprintf(", next step after %.2f s at most", row.Longest)
		}
		fmt.Fprintf(cfg.Progress, "run %d of seed %d: %s: %d failures%s, %d steps lost: %s\n", n, cfg.Seed, row.Flags, row.Failures, next, row.Lost, said)
		rows = append(rows, row)
	}
	return rows, nil
}

// one makes run number n, and the undisturbed run if it must have the same parameters.
func (cfg *Config) one(ctx context.Context, n int) (row Row, err error) {
	d := cfg.Draw(n)
	dir, err := os.MkdirTemp("", "kintsugi-drawn-")
	if err != nil {
		return row, err
	}
	r := &runs{cfg: cfg, dir: dir}
	if cfg.Store != nil {
		at, err := cfg.Store(context.WithoutCancel(ctx), filepath.Base(dir)) // it is tidied after an interrupt too
		if err != nil {
			return row, err
		}
		r.at = &at
	}
	defer func() {
		if len(row.Broken) == 0 {
			err = errors.Join(err, r.erase())
		}
	}()
	row = Row{Name: "drawn", Seed: cfg.Seed, Number: n, Flags: d.String(), Kept: dir, Longest: record.Unknown(), Interrupted: record.Unknown()}
	var got result
	if got, row.Broken, err = r.run(ctx, "run", d); err != nil || len(row.Broken) > 0 {
		return row, err
	}
	if got.interrupted {
		row.Interrupted = record.Number(d.Interrupt.Seconds())
	}
	row.Failures, row.Bits = len(got.summary.Failures), got.bits
	for _, f := range got.summary.Failures {
		if row.Lost += f.LostSteps; f.RecoverySeconds.Known() && (!row.Longest.Known() || row.Longest < f.RecoverySeconds) {
			row.Longest = f.RecoverySeconds
		}
	}
	row.Broken = d.broken(got)
	if d.repeats(got) {
		calm := &Training{Settings: d.Settings, Program: d.Program, steps: d.steps}
		was, broken, err := r.run(ctx, "calm", calm)
		if err != nil {
			return row, err
		}
		if row.CalmBits = was.bits; len(broken) > 0 {
			row.Broken = append(row.Broken, fmt.Sprintf("undisturbed, %s", strings.Join(broken, "; ")))
		} else if got.bits != was.bits {
			row.Broken = append(row.Broken, fmt.Sprintf("its parameters are %s, those of the undisturbed run %s", got.bits, was.bits))
		}
	}
	if len(row.Broken) == 0 {
		row.Kept = ""
	}
	return row, nil
}

// broken returns which promises a run has broken, apart from that of its parameters.
func (d *Training) broken(got result) (list []string) {
	s := got.summary
	if s.Reason != kintsugi.AllSteps || s.Steps != uint64(d.steps) {
		list = append(list, fmt.Sprintf("it ended at step %d of %d: %s", s.Steps, d.steps, s.Reason))
	}
	if got.damaged > 0 {
		list = append(list, fmt.Sprintf("its checkpoint has %d damaged places", got.damaged))
	}
	list = append(list, got.crashes...)
	if !d.keepsSteps() || got.interrupted {
		return list
	}
	for _, f := range s.Failures {
		if f.LostSteps > 0 {
			list = append(list, fmt.Sprintf("the failure of %s at step %d took back %d steps", f.Part, f.Step, f.LostSteps))
		}
	}
	return list
}

// keepsSteps reports whether no step may be taken back: each server finds its shard in memory
// outside its process.
func (d *Training) keepsSteps() bool {
	return !d.loses && (d.recovery == "stateless" || d.recovery == "gold" && d.replicas <= 1)
}

// repeats reports whether the run must have ended with the parameters of the undisturbed one: its
// steps have counted the gradients of all workers, on the same parameters, and nothing that workers
// have left out of what they sent was lost.
func (d *Training) repeats(got result) bool {
	s := got.summary
	if d.partial || d.other && got.resumed {
		return false
	}
	for _, f := range s.Failures {
		if f.PartialChunks > 0 {
			return false
		}
	}
	whole := s.UsefulGradients == uint64(d.steps*d.workers)
	return d.synchronous && whole && !(d.lossy && (s.ResidualsLost > 0 || got.interrupted))
}

// runs are the run that is drawn and the undisturbed one, with a folder each.
type runs struct {
	cfg   *Config
	dir   string
	at    *Place // of the folders of their checkpoints; nil: these are in their own folders
	names []string
}

// erase removes what they have written.
func (r *runs) erase() (err error) {
	for _, name := range r.names {
		fs, at := r.checkpoints(name)
		err = errors.Join(err, ckpt.Erase(fs, at))
	}
	if r.at != nil && r.at.FS == vfs.FS(vfs.OS{}) { // it has folders, too
		err = errors.Join(err, os.RemoveAll(r.at.Dir))
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// checkpoints returns where the checkpoints of a run are.
func (r *runs) checkpoints(name string) (fs vfs.FS, at string) {
	if r.at != nil {
		return r.at.FS, path.Join(r.at.Dir, name)
	}
	return vfs.OS{}, filepath.Join(r.dir, name, record.Checkpoints)
}

// run makes a run in the folder of a name. Broken says in which way it did not end in order.
func (r *runs) run(ctx context.Context, name string, d *Training) (got result, broken []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, process.StuckAfter, process.ErrStuck)
	defer cancel()
	r.names = append(r.names, name)
	cfg, out := r.cfg, filepath.Join(r.dir, name)
	flags := []string{"--eval-every", "1000000"}
	if r.at != nil {
		flags = append(flags, "--store", r.at.Flag)
	}
	if cfg.TLS != "" {
		flags = append(flags, "--tls", cfg.TLS)
	}
	flags = append(flags, d.Args()...)
	c, err := process.StartTrain(cfg.Binary, out, flags)
	if err != nil {
		return got, nil, err
	}
	if d.Interrupt > 0 {
		select {
		case <-c.Ended:
		case <-ctx.Done():
		case <-time.After(d.Interrupt):
			got.interrupted = true
			c.Signal(syscall.SIGKILL)
			<-c.Ended
			if record.Has(out) {
				got.resumed = true
				c, err = process.Start(cfg.Binary, append([]string{"train", "--resume", out, "--log-level", "error"}, d.Resumed...)...)
			} else { // it had not even begun its record
				c, err = process.StartTrain(cfg.Binary, out, flags)
			}
			if err != nil {
				return got, nil, err
			}
		}
	}
	if err := c.Wait(ctx); err != nil {
		if ctx.Err() != nil && context.Cause(ctx) != process.ErrStuck {
			return got, nil, err
		}
		said := strings.TrimSpace(c.Printed.String())
		return got, []string{fmt.Sprintf("it ended with %v: %s", err, said[max(0, len(said)-500):])}, nil
	}
	run, err := record.ReadRun(out)
	if err != nil {
		return got, nil, err
	}
	got.summary = run.Summary
	if got.crashes, err = record.Crashes(out); err != nil {
		return got, nil, err
	}
	fs, at := r.checkpoints(name)
	got.bits, got.damaged, err = process.LastSaved(ctx, fs, at)
	return got, nil, err
}
