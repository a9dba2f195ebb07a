package train

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
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// Training is the train command: a cluster of real processes on this machine.
type Training struct {
	job.Settings
	Config    string
	Out       string
	Resume    string
	Faults    []string
	EvalEvery uint64
	Store     string
	Etcd      []string
	Price     string
	Metrics   string
	Figures   bool // for TensorBoard
	early
	role.Notices
	job.Security

	Flags       *pflag.FlagSet
	faultsOfRun bool              // Faults are those of the run that is resumed, not given anew
	passed      string            // describes checkpoints that a resumed run skips; "": none
	tls         *mtls.Credentials // credentials of an operator; nil: plain TCP, or no connection yet
}

// Register adds the flags of train to f, and keeps f.
func (t *Training) Register(f *pflag.FlagSet) {
	t.Settings.Register(f)
	t.Notices.Register(f)
	t.Security.Register(f)
	f.StringVar(&t.Price, "price", "", "price of nodes, for the bill: "+cost.Forms+", such as server=0.096/0.035,worker=0.526/0.158 (default: unknown, and the bill is in node-seconds)")
	f.StringVar(&t.Metrics, "metrics", "", metricsUsage)
	f.BoolVar(&t.Figures, "tensorboard", false, figuresUsage)
	f.StringVar(&t.Config, "config", "", "YAML file of settings; flags override it")
	f.StringVar(&t.Out, "out", "", "folder for everything the run writes (default runs/MODEL-DATA-TIME)")
	f.StringVar(&t.Resume, "resume", "", "continue the run in this folder, from its newest checkpoint")
	f.StringArrayVar(&t.Faults, "fault", nil, `a fault to cause, such as "kill server/0 at step 500 for 5s"; may be repeated; none: no fault (default: none, or with --resume those that the run has not caused yet)`)
	f.Uint64Var(&t.EvalEvery, "eval-every", 0, "steps between two evaluations on the test set (default: a tenth of --steps)")
	t.early.register(f)
	f.StringVar(&t.Store, "store", "", "folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix?account=NAME for checkpoints; the run gets a folder in it, named as that of --out (default: the run's own folder); keys come from the environment")
	f.StringSliceVar(&t.Etcd, "etcd", nil, "addresses of an etcd to use instead of one inside this process")
	t.Flags = f
}

const trainExample = `  kintsugi train
  kintsugi train --model mlp --data mnist --data-dir ~/mnist --workers 4 --servers 2 --steps 1500 --out runs/mnist
  kintsugi train --fault "kill server/0 at step 500 for 5s" --fault "slow worker/2 x5 from step 100"
  kintsugi train --resume runs/mnist --steps 3000
  kintsugi train --steps 500 -- python3 train.py     # a model of its own, in any framework`

// Command returns the train command.
func Command() *cobra.Command {
	t := &Training{}
	cmd := &cobra.Command{
		Use: "train", Short: "Train a model on a local cluster, through failures", Example: trainExample, Args: job.ProgramAfterDash,
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
	t.Register(cmd.Flags())
	return cmd
}

// RerunCommand returns the command that repeats a run.
func RerunCommand() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use: "rerun DIR", Short: "Repeat a run with the settings and seeds of its folder", Args: cli.OneArg("run folder"),
		Example: "  kintsugi rerun runs/mnist --out runs/mnist-again",
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &Training{}
			t.Register(job.NewFlagSet("rerun"))
			file := filepath.Join(args[0], ConfigFile)
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("%w: %s is not a run folder: %w", kintsugi.ErrUsage, args[0], err)
			}
			if err := job.LoadFile(t.Flags, file); err != nil {
				return err
			}
			t.Out, t.Described = out, ""
			return t.command(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder for the new run (default runs/MODEL-DATA-TIME)")
	return cmd
}

// ConfigFile is the file in a run's folder with its settings.
const ConfigFile = "config.yaml"

// command prepares a run, runs it, and reports how it ended.
func (t *Training) command(ctx context.Context, stdout io.Writer) error {
	resumed := t.Resume != ""
	t.faultsOfRun = resumed && !t.Flags.Changed("fault")
	if resumed {
		if t.Out != "" || t.Config != "" {
			return fmt.Errorf("%w: --resume DIR goes on in DIR with its settings; leave --out and --config away", kintsugi.ErrUsage)
		}
		t.Out, t.Config = t.Resume, filepath.Join(t.Resume, ConfigFile)
		if _, err := os.Stat(t.Config); err != nil {
			return fmt.Errorf("%w: --resume %s: not a run folder: %w", kintsugi.ErrUsage, t.Resume, err)
		}
	}
	if err := job.Load(t.Flags, t.Config); err != nil {
		return err
	}
	faults, err := t.Checked()
	if err != nil {
		return err
	}
	if err := t.checkSecurity(); err != nil {
		return err
	}
	if err := Absolute(&t.DataDir); err != nil {
		return err
	}
	lib, err := job.UseBLAS(&t.Settings)
	if err != nil {
		return err
	}
	if err := t.PrepareProgram(resumed); err != nil {
		return err
	}
	second := job.StartSecond(ctx, &t.Settings)
	defer second.Close()
	prob, err := job.Describe(&t.Settings)
	if err != nil {
		return err
	}
	defer prob.Close()
	_, err = t.Counting()
	if err := cmp.Or(err, prob.Open(&t.Settings), t.early.fits(prob)); err != nil {
		return err
	}
	if t.EvalEvery == 0 {
		t.EvalEvery = max(1, t.Steps/10)
	}
	if t.Out == "" {
		model := strings.ReplaceAll(t.Model, ":", "-") // rsync and scp would take "mf:als" for a file on host mf
		t.Out = unused(filepath.Join("runs", fmt.Sprintf("%s-%s-%s", model, t.Data, time.Now().Format("20060102-150405"))))
	}
	if err := t.Absolute(); err != nil {
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
	rec, earlier, err := t.Record(resumed, prob)
	if err != nil {
		return err
	}
	if err := prob.Program.Keep(t.Out); err != nil {
		return err
	}
	noteWarning(rec, stdout, warning)
	start := time.Now()
	r := &run{Training: t, watcher: newWatcher(&t.Settings, prob, rec, start), faults: faults, earlier: earlier.Evaluations, stdout: stdout, blas: lib.String(), start: start, metrics: metrics}
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
func (t *Training) canBegin(ctx context.Context, p *job.Problem, resumed bool) error {
	store, err := t.StoreName()
	if err != nil {
		return err
	}
	done := cli.Meanwhile(func(took time.Duration) {
		fmt.Fprintf(cli.Stderr, "kintsugi: still looking for checkpoints in %s, after %v\n", store, took)
	})
	if resumed {
		err = t.resumable(ctx, p)
	} else {
		err = t.Fresh(ctx)
	}
	done()
	if err != nil {
		return err
	}
	return t.reachEtcd(ctx)
}

// zeros refuses a 0 on the command line that would stand for the model's suggestion: a user who
// types --steps 0 does not want 1,000 steps. In a file of settings, 0 keeps this meaning.
func (t *Training) zeros() error {
	for _, name := range []string{"steps", "batch", "learning-rate"} {
		f := t.Flags.Lookup(name)
		if x, err := strconv.ParseFloat(f.Value.String(), 64); f.Changed && err == nil && x == 0 {
			return fmt.Errorf("%w: --%s 0 trains nothing; leave it away for what the model suggests", kintsugi.ErrUsage, name)
		}
	}
	return nil
}

// Checked checks everything that can be checked before anything of the run is opened, and returns the
// faults that it is to cause.
func (t *Training) Checked() ([]launch.Fault, error) {
	t.PlaceOnOneHost()
	if err := t.Settings.Check(); err != nil {
		return nil, err
	}
	if err := cmp.Or(t.CheckNotices(t.Warning), t.checkEarly()); err != nil {
		return nil, err
	}
	if _, _, err := cost.Parse(t.Price); err != nil {
		return nil, err
	}
	faults, err := t.faults()
	if err != nil {
		return nil, err
	}
	_, err = cli.NewLog(io.Discard, t.LogLevel, false)
	return faults, err
}

// faults returns the faults that the run is to cause. One that is resumed, and has none given anew, is to
// cause those that it has not caused yet: of the others, it may have lost the part that they name.
func (t *Training) faults() ([]launch.Fault, error) {
	faults, err := launch.ParseFaults(t.Faults)
	if err != nil {
		return nil, err
	}
	if t.faultsOfRun && len(faults) > 0 {
		if earlier, err := record.ReadOutline(t.Resume); err == nil { // else Record says what is wrong with it
			faults = remaining(faults, earlier.Faults)
		}
	}
	for _, f := range faults {
		err := f.Check(t.Servers, t.Workers)
		if err != nil && t.faultsOfRun {
			return nil, fmt.Errorf("a fault that the run has not caused yet; give --fault anew, or --fault none: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	return faults, nil
}

// Record opens the run directory, and returns what earlier parts of the run have recorded; an empty
// record if there are none.
func (t *Training) Record(resumed bool, p *job.Problem) (*record.Recorder, *record.Run, error) {
	h, err := t.header(p, time.Now(), resumed)
	if err != nil {
		return nil, nil, err
	}
	config := job.Dump(t.Flags, "out", "resume", "etcd")
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
	if err := record.WriteFile(filepath.Join(t.Out, ConfigFile), func(w io.Writer) error {
		_, err := w.Write(config)
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("write the settings: %w", err)
	}
	return rec, earlier, nil
}

// header returns the header of a run's record that begins at start.
func (t *Training) header(p *job.Problem, start time.Time, resumed bool) (record.Header, error) {
	codec, err := compress.Parse(t.Codec)
	if err != nil {
		return record.Header{}, err
	}
	return record.Header{
		Format: record.Format, Start: start, Model: t.Model, Parameters: p.Layout.Values, Data: t.Data, LocalSteps: t.LocalSteps,
		Consistency: t.Consistency, Recovery: t.Recovery, Codec: t.Codec, Feedback: codec.Feedback(),
		Device:  t.DeviceName(),
		Servers: t.Servers, Workers: t.Workers, Replicas: t.Protects().Replicas, Steps: t.Steps, Prices: t.Price, Version: job.Version().Commit, Resumed: resumed,
	}, nil
}

// Absolute makes the folders that the run writes to absolute.
func (t *Training) Absolute() error {
	if !job.IsURL(t.Store) {
		if err := Absolute(&t.Store); err != nil {
			return err
		}
	}
	if err := Absolute(&t.TLS); err != nil {
		return err
	}
	return Absolute(&t.Out)
}

// Absolute makes a path absolute, for child processes and for messages.
func Absolute(path *string) error {
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
func (t *Training) checkSecurity() error {
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
