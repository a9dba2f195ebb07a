package measure

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/failure"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// reproduceFailure is an experiment: what is left of a run after its server was killed, for each
// recovery. bench outage is the same with other runs and another table.
type reproduceFailure struct {
	outage  bool // bench outage
	cfg     failure.Config
	presets []string
	data    string
	dataDir string
	price   string
	quick   bool
	out     string
	format  string
}

func reproduceFailureCommand() *cobra.Command {
	r := &reproduceFailure{}
	cmd := &cobra.Command{
		Use: "failure [-- FLAGS OF TRAIN]", Short: "Kill the parameter server while a network learns, and compare the ways to survive",
		Example: "  kintsugi reproduce failure --quick\n  kintsugi reproduce failure --models cnn --workers 1 --seeds 5 --data-dir ~/data --out runs/failure\n" +
			"  kintsugi reproduce failure --presets checkpoint/async,stateless/async,gold/async --kills 1",
		Long: "Failure trains the network of Training Through Failure in real processes, kills its servers once and twice, and writes\n" +
			"accuracy over gradients and over seconds, what outages cost, and the paper's figures beside to table.json and\n" +
			"report.html. Each run is kept in the folder: called again with the same --out, it makes those that are missing.",
		RunE: func(cmd *cobra.Command, args []string) error { return r.command(cmd, args) },
	}
	f := cmd.Flags()
	r.register(f, failure.Presets)
	f.StringSliceVar(&r.cfg.Models, "models", []string{"cnn:relu-logits", "cnn"}, "networks: as published, with a ReLU on the logits and gradients that are summed, and without")
	f.IntSliceVar(&r.cfg.Workers, "workers", []int{1, 4}, "numbers of workers")
	f.IntSliceVar(&r.cfg.Kills, "kills", []int{0, 1, 2}, "numbers of kills in a run")
	f.IntVar(&r.cfg.Updates, "updates", 1000, "gradients of each worker in a run")
	f.IntSliceVar(&r.cfg.KillAt, "kill-at", []int{155, 455}, "updates of a worker after which servers are killed")
	f.BoolVar(&r.quick, "quick", false, "generated images, one seed, one worker, short runs and outages: about a minute, to see that it works")
	return cmd
}

func benchOutageCommand() *cobra.Command {
	r := &reproduceFailure{outage: true}
	r.cfg.Calm = "wait"
	cmd := &cobra.Command{
		Use: "outage [-- FLAGS OF TRAIN]", Short: "Compare what workers can do while servers are away, and ways to apply what they keep",
		Example: "  kintsugi bench outage --quick\n  kintsugi bench outage --data-dir ~/data --out runs/outage\n  kintsugi bench outage --workers 4 --presets checkpoint,wait,decay",
		Long: "Outage trains in real processes whose servers are killed once and twice and stay away for twenty seconds, compares the runs\n" +
			"with undisturbed ones at equal counted pushes and with a checkpoint after equal time, and says which rule is best.\n" +
			"Called again with the same --out, it makes the runs that are missing.",
		RunE: func(cmd *cobra.Command, args []string) error { return r.command(cmd, args) },
	}
	f := cmd.Flags()
	r.register(f, failure.OutagePresets)
	f.StringSliceVar(&r.cfg.Models, "models", []string{"cnn"}, "models to train")
	f.IntSliceVar(&r.cfg.Workers, "workers", []int{1}, "numbers of workers")
	f.IntSliceVar(&r.cfg.Kills, "kills", []int{0, 1, 2}, "numbers of kills in a run")
	f.IntVar(&r.cfg.Updates, "updates", 600, "gradients of each worker in a run")
	f.IntSliceVar(&r.cfg.KillAt, "kill-at", []int{155, 355}, "updates of a worker after which servers are killed")
	f.BoolVar(&r.quick, "quick", false, "generated images, one seed, short runs and outages: about a minute, to see that it works")
	return cmd
}

// register adds the flags that both commands share.
func (r *reproduceFailure) register(f *pflag.FlagSet, presets []failure.Preset) {
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	f.StringSliceVar(&r.presets, "presets", names, "what to compare; what train does not know is left out unless it is asked for")
	f.StringVar(&r.data, "data", "fashion", "images to learn")
	f.StringVar(&r.dataDir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	f.IntVar(&r.cfg.Seeds, "seeds", 5, "runs of each kind, with the seeds 1, 2, …")
	f.IntVar(&r.cfg.SaveEvery, "save-every", 100, "updates of a worker between two checkpoints")
	f.DurationVar(&r.cfg.Outage, "outage", 20*time.Second, "how long a killed server stays away")
	f.DurationVar(&r.cfg.GradientTime, "gradient-time", 80*time.Millisecond, "time of a gradient at least: by default 250 of them are an outage, about as many as in the paper")
	f.IntVar(&r.cfg.Parallel, "parallel", 4*job.Cores(), "workers at the same time, of all runs together; they wait most of the time")
	f.StringVar(&r.price, "price", "", "prices of an hour of a node, as train's --price; empty: node-seconds alone")
	f.StringVar(&r.out, "out", "", "folder for the runs' results, table.json and report.html (default runs/NAME-TIME)")
	f.StringVar(&r.format, "format", "text", "text, json or benchfmt")
}

// shorten applies --quick to flags that the command line does not set.
func (r *reproduceFailure) shorten(f *pflag.FlagSet) {
	if !r.quick {
		return
	}
	unsaid(f, map[string]func(){
		"data": func() { r.data = "digits" }, "models": func() { r.cfg.Models = []string{"cnn"} }, "workers": func() { r.cfg.Workers = []int{1} },
		"seeds": func() { r.cfg.Seeds = 1 }, "updates": func() { r.cfg.Updates = 120 }, "kill-at": func() { r.cfg.KillAt = []int{45, 85} },
		"save-every": func() { r.cfg.SaveEvery = 30 }, "outage": func() { r.cfg.Outage = 2 * time.Second },
		"gradient-time": func() { r.cfg.GradientTime = 20 * time.Millisecond },
	})
	if !r.outage {
		unsaid(f, map[string]func(){"kills": func() { r.cfg.Kills = []int{0, 2} }})
	}
}

func (r *reproduceFailure) command(cmd *cobra.Command, args []string) error {
	if err := job.Load(cmd.Flags(), ""); err != nil {
		return err
	}
	r.shorten(cmd.Flags())
	if err := r.prepare(cmd, args); err != nil {
		return err
	}
	name := "failure"
	if r.outage {
		name = "outage"
	}
	dir, about := experiment(name, r.out)
	r.cfg.Dir = dir
	runs, failed := failure.Run(cmd.Context(), r.cfg, job.Cores())
	if err := cmd.Context().Err(); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the runs that are there stay in %s; go on with the same --out\n", dir)
		return err
	}
	rows := failure.Rows(runs)
	if len(rows) == 0 {
		return errors.Join(errors.New("no run came to its end"), failed)
	}
	tables := failure.Tables(rows)
	if r.outage {
		tables = failure.OutageTable(rows)
	}
	page, err := failure.Write(dir, about, &r.cfg, rows, tables)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", page)
	return errors.Join(r.print(cmd.OutOrStdout(), about, rows, tables), failed)
}

func (r *reproduceFailure) print(w io.Writer, about page.Experiment, rows []failure.Row, tables []page.Table) error {
	if r.format != "text" {
		return printRows(w, r.format, rows, "", func(row failure.Row) (string, string) { return "", row.Benchfmt(benchName(row.Name)) })
	}
	if err := page.WriteTables(w, tables); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s, commit %s\n", about.Machine, about.Commit)
	return err
}

// prepare checks the settings, and determines which presets there are.
func (r *reproduceFailure) prepare(cmd *cobra.Command, args []string) (err error) {
	if err := checkFormat(r.format); err != nil {
		return err
	}
	if r.cfg.Binary, err = os.Executable(); err != nil {
		return err
	}
	if r.dataDir != "" {
		if r.dataDir, err = filepath.Abs(r.dataDir); err != nil {
			return err
		}
	}
	if _, err := data.Open(r.data, r.dataDir); err != nil {
		return err
	}
	r.cfg.Flags = append([]string{"--data", r.data}, args...)
	if r.dataDir != "" {
		r.cfg.Flags = append(r.cfg.Flags, "--data-dir", r.dataDir)
	}
	if r.price != "" {
		r.cfg.Flags = append(r.cfg.Flags, "--price", r.price)
	}
	r.cfg.Progress = cmd.ErrOrStderr()
	known := failure.Presets
	if r.outage {
		known = failure.OutagePresets
	}
	var without []string
	for _, name := range r.presets {
		i := slices.IndexFunc(known, func(p failure.Preset) bool { return p.Name == name })
		if i < 0 {
			return fmt.Errorf("%w: --presets: there is no preset %q; use some of %s", kintsugi.ErrUsage, name, cmd.Flag("presets").DefValue)
		}
		err := trains(known[i])
		switch {
		case err != nil && cmd.Flags().Changed("presets"):
			return err
		case err != nil:
			without = append(without, name)
		default:
			r.cfg.Presets = append(r.cfg.Presets, known[i])
		}
	}
	if len(without) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "without %s: train does not know how\n", strings.Join(without, ", "))
	}
	if err := r.cfg.Check(); err != nil {
		return fmt.Errorf("%w: %s: %w", kintsugi.ErrUsage, cmd.CommandPath(), err)
	}
	return nil
}

// trains returns an error for a preset that train does not accept.
func trains(p failure.Preset) error {
	t := &train.Training{}
	f := job.NewFlagSet("train")
	t.Register(f)
	if err := f.Parse(append([]string{"--recovery", p.Recovery, "--consistency", map[bool]string{true: "async", false: "bsp"}[p.Async],
		"--servers", fmt.Sprint(p.Servers)}, p.Flags...)); err != nil {
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	return t.Check()
}
