package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// training is the train command: a cluster of real processes on this machine.
type training struct {
	settings
	Config    string
	Out       string
	Resume    string
	Faults    []string
	EvalEvery uint64
	Store     string
	Etcd      []string
	Price     string
	Metrics   string
	early
	notices
	security

	flags  *pflag.FlagSet
	passed string            // describes checkpoints that a resumed run skips; "": none
	tls    *mtls.Credentials // credentials of an operator; nil: plain TCP, or no connection yet
}

// register adds the flags of train to f, which the settings keep.
func (t *training) register(f *pflag.FlagSet) {
	t.settings.register(f)
	t.notices.register(f)
	t.security.register(f)
	f.StringVar(&t.Price, "price", "", "price of nodes, for the bill: "+cost.Forms+", such as server=0.096/0.035,worker=0.526/0.158 (default: unknown, and the bill is in node-seconds)")
	f.StringVar(&t.Metrics, "metrics", "", metricsUsage)
	f.StringVar(&t.Config, "config", "", "YAML file of settings; flags override it")
	f.StringVar(&t.Out, "out", "", "folder for everything the run writes (default runs/MODEL-DATA-TIME)")
	f.StringVar(&t.Resume, "resume", "", "continue the run in this folder, from its newest checkpoint")
	f.StringArrayVar(&t.Faults, "fault", nil, `a fault to cause, such as "kill server/0 at step 500 for 5s"; may be repeated`)
	f.Uint64Var(&t.EvalEvery, "eval-every", 0, "steps between two evaluations on the test set (default: a tenth of --steps)")
	t.early.register(f)
	f.StringVar(&t.Store, "store", "", "folder or s3://bucket/prefix?endpoint=URL for checkpoints; the run gets a folder in it, named as that of --out (default: the run's own folder); keys come from the environment")
	f.StringSliceVar(&t.Etcd, "etcd", nil, "addresses of an etcd to use instead of one inside this process")
	t.flags = f
}

const trainExample = `  kintsugi train
  kintsugi train --model mlp --data mnist --data-dir ~/mnist --workers 4 --servers 2 --steps 1500 --out runs/mnist
  kintsugi train --fault "kill server/0 at step 500 for 5s" --fault "slow worker/2 x5 from step 100"
  kintsugi train --resume runs/mnist --steps 3000
  kintsugi train --steps 500 -- python3 train.py     # a model of its own, in any framework`

// trainCommand returns the train command.
func trainCommand() *cobra.Command {
	t := &training{}
	cmd := &cobra.Command{
		Use: "train", Short: "Train a model on a local cluster, through failures", Example: trainExample, Args: programAfterDash,
		Long: "Train starts a coordinator, servers and workers as processes of this binary, and causes the faults that\n" +
			"--fault names. It writes the run's events, checkpoints, logs and report to a folder.\n\n" +
			"Ctrl-C ends the run after a last checkpoint, or without it if the store does not take it in time. A\n" +
			"second Ctrl-C kills the run. Closing the terminal (unless under nohup), SIGTERM, and the notice of a\n" +
			"cloud that takes the machine do the same. SIGTERM to one of its processes is a notice to that process:\n" +
			"it hands over, leaves, and is started again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.zeros(); err != nil {
				return err
			}
			return t.command(cmd.Context(), cmd.OutOrStdout())
		},
	}
	t.register(cmd.Flags())
	return cmd
}

// rerunCommand returns the command that repeats a run.
func rerunCommand() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use: "rerun DIR", Short: "Repeat a run with the settings and seeds of its folder", Args: oneArg("run folder"),
		Example: "  kintsugi rerun runs/mnist --out runs/mnist-again",
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &training{}
			t.register(newFlagSet("rerun"))
			file := filepath.Join(args[0], configFile)
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("%w: %s is not a run folder: %w", kintsugi.ErrUsage, args[0], err)
			}
			if err := loadFile(t.flags, file); err != nil {
				return err
			}
			t.Out, t.Described = out, ""
			return t.command(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder for the new run (default runs/MODEL-DATA-TIME)")
	return cmd
}

// configFile is the file in a run's folder with its settings.
const configFile = "config.yaml"

// command prepares a run, runs it, and reports how it ended.
func (t *training) command(ctx context.Context, stdout io.Writer) error {
	resumed, newFaults := t.Resume != "", t.flags.Changed("fault")
	if resumed {
		if t.Out != "" || t.Config != "" {
			return fmt.Errorf("%w: --resume DIR goes on in DIR with its settings; leave --out and --config away", kintsugi.ErrUsage)
		}
		t.Out, t.Config = t.Resume, filepath.Join(t.Resume, configFile)
		if _, err := os.Stat(t.Config); err != nil {
			return fmt.Errorf("%w: --resume %s: not a run folder: %w", kintsugi.ErrUsage, t.Resume, err)
		}
	}
	if err := load(t.flags, t.Config); err != nil {
		return err
	}
	faults, err := t.checked()
	if err != nil {
		return err
	}
	if err := t.checkSecurity(); err != nil {
		return err
	}
	if err := absolute(&t.DataDir); err != nil {
		return err
	}
	lib, err := useBLAS(&t.settings)
	if err != nil {
		return err
	}
	if err := t.prepareProgram(resumed); err != nil {
		return err
	}
	second := startSecond(ctx, &t.settings)
	defer second.close()
	prob, err := describe(&t.settings)
	if err != nil {
		return err
	}
	defer prob.close()
	if err := cmp.Or(prob.open(&t.settings), t.early.fits(prob)); err != nil {
		return err
	}
	if t.EvalEvery == 0 {
		t.EvalEvery = max(1, t.Steps/10)
	}
	if t.Out == "" {
		model := strings.ReplaceAll(t.Model, ":", "-") // rsync and scp would take "mf:als" for a file on host mf
		t.Out = unused(filepath.Join("runs", fmt.Sprintf("%s-%s-%s", model, t.Data, time.Now().Format("20060102-150405"))))
	}
	if err := t.absolute(); err != nil {
		return err
	}
	if err := t.canBegin(ctx, prob, resumed); err != nil {
		return err
	}
	warning, err := t.tryProgram(ctx, prob, second)
	if err != nil {
		return err
	}
	metrics, err := listenMetrics(t.Metrics)
	if err != nil {
		return err
	}
	rec, earlier, err := t.record(resumed, prob)
	if err != nil {
		return err
	}
	if err := prob.program.keep(t.Out); err != nil {
		return err
	}
	noteWarning(rec, stdout, warning)
	if !newFaults {
		faults = remaining(faults, earlier.Faults)
	}
	start := time.Now()
	r := &run{training: t, watcher: newWatcher(&t.settings, prob, rec, start), faults: faults, earlier: earlier.Evaluations, stdout: stdout, blas: lib.String(), start: start, metrics: metrics}
	r.evalEvery = t.EvalEvery
	return r.main(ctx)
}

// noteWarning writes a warning, if there is one, to the run's record and the screen.
func noteWarning(rec *record.Recorder, stdout io.Writer, warning string) {
	if warning != "" {
		rec.Record(time.Now(), &record.Note{Level: "warn", Text: warning})
		fmt.Fprintln(stdout, warning)
	}
}

// unused returns a folder that does not exist yet: the given one, or, if two runs begin in one
// second, that with a number appended.
func unused(dir string) string {
	name := dir
	for i := 2; ; i++ {
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", dir, i)
	}
}

// canBegin returns an error if a run would lack something that it needs, before anything is
// written.
func (t *training) canBegin(ctx context.Context, p *problem, resumed bool) error {
	store, err := t.store()
	if err != nil {
		return err
	}
	done := meanwhile(func(took time.Duration) {
		fmt.Fprintf(os.Stderr, "kintsugi: still looking for checkpoints in %s, after %v\n", store, took)
	})
	if resumed {
		err = t.resumable(ctx, p)
	} else {
		err = t.fresh(ctx)
	}
	done()
	if err != nil {
		return err
	}
	return t.reachEtcd(ctx)
}

// zeros refuses a 0 on the command line that would stand for the model's suggestion: a user who
// types --steps 0 does not want 1,000 steps. In a file of settings, 0 keeps this meaning.
func (t *training) zeros() error {
	for _, name := range []string{"steps", "batch", "learning-rate"} {
		f := t.flags.Lookup(name)
		if x, err := strconv.ParseFloat(f.Value.String(), 64); f.Changed && err == nil && x == 0 {
			return fmt.Errorf("%w: --%s 0 trains nothing; leave it away for what the model suggests", kintsugi.ErrUsage, name)
		}
	}
	return nil
}

// checked checks everything that can be checked before anything is opened, and returns the faults.
func (t *training) checked() ([]launch.Fault, error) {
	t.placeOnOneHost()
	if err := t.settings.check(); err != nil {
		return nil, err
	}
	if err := cmp.Or(t.checkNotices(t.Warning), t.checkEarly()); err != nil {
		return nil, err
	}
	if _, _, err := cost.Parse(t.Price); err != nil {
		return nil, err
	}
	faults, err := launch.ParseFaults(t.Faults)
	if err != nil {
		return nil, err
	}
	for _, f := range faults {
		if err := f.Check(t.Servers, t.Workers); err != nil {
			return nil, err
		}
	}
	_, err = newLog(io.Discard, t.LogLevel, false)
	return faults, err
}

// record opens the run directory, and returns what earlier parts of the run have recorded; an empty
// record if there are none.
func (t *training) record(resumed bool, p *problem) (*record.Recorder, *record.Run, error) {
	h, err := t.header(p, time.Now(), resumed)
	if err != nil {
		return nil, nil, err
	}
	config := dump(t.flags, "out", "resume", "etcd")
	if !resumed {
		rec, err := record.Create(t.Out, config, h)
		return rec, &record.Run{}, err
	}
	rec, earlier, err := record.Resume(t.Out, h, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := forgetControl(t.Out); err != nil {
		return nil, nil, err
	}
	if err := record.WriteFile(filepath.Join(t.Out, configFile), func(w io.Writer) error {
		_, err := w.Write(config)
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("write the settings: %w", err)
	}
	return rec, earlier, nil
}

// header returns the header of a run's record that begins at start.
func (t *training) header(p *problem, start time.Time, resumed bool) (record.Header, error) {
	codec, err := compress.Parse(t.Codec)
	if err != nil {
		return record.Header{}, err
	}
	return record.Header{
		Format: record.Format, Start: start, Model: t.Model, Parameters: p.layout.Values, Data: t.Data,
		Consistency: t.Consistency, Recovery: t.Recovery, Codec: t.Codec, Feedback: codec.Feedback(),
		Device:  t.deviceName(),
		Servers: t.Servers, Workers: t.Workers, Replicas: t.protects().replicas, Steps: t.Steps, Prices: t.Price, Version: version().Commit, Resumed: resumed,
	}, nil
}

// absolute makes the folders that the run writes to absolute.
func (t *training) absolute() error {
	if !isURL(t.Store) {
		if err := absolute(&t.Store); err != nil {
			return err
		}
	}
	if err := absolute(&t.TLS); err != nil {
		return err
	}
	return absolute(&t.Out)
}

// absolute makes a path absolute, for child processes and for messages.
func absolute(path *string) error {
	if *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	if err != nil {
		return errors.Join(kintsugi.ErrUsage, err)
	}
	*path = abs
	return nil
}

// checkSecurity checks, before anything is started, that every process will have its credentials.
func (t *training) checkSecurity() error {
	if t.TLS == "" {
		return nil
	}
	type process struct {
		role  mtls.Role
		index int
	}
	all := []process{{mtls.Operator, mtls.Any}, {mtls.Coordinator, mtls.Any}}
	if len(t.Etcd) == 0 {
		all = append(all, process{mtls.Etcd, mtls.Any})
	}
	for i := range t.Servers {
		all = append(all, process{mtls.Server, i})
	}
	for i := range t.Workers {
		all = append(all, process{mtls.Worker, i})
	}
	for _, p := range all {
		if _, err := mtls.Open(t.TLS, p.role, p.index, nil); err != nil {
			return err
		}
	}
	return nil
}
