package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/goodput"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

// benchGoodput compares all ways to recover under the same random failures.
type benchGoodput struct {
	cfg          goodput.Config
	recoveries   []string
	mtbf         []string
	gradientTime time.Duration
	quick        bool
	out, picture string
	format       string
}

func benchGoodputCommand() *cobra.Command {
	b := &benchGoodput{}
	cmd := &cobra.Command{
		Use: "goodput [-- FLAGS OF TRAIN]", Short: "Kill servers at random and compare the useful steps per second of each way to recover", Args: cobra.ArbitraryArgs,
		Example: "  kintsugi bench goodput --quick\n  kintsugi bench goodput --out runs/goodput --picture goodput.svg -- --data fashion\n" +
			"  kintsugi bench goodput --recoveries gold,chain:3,checkpoint:10 --loss lose --mtbf none,5s",
		Long: "Goodput trains in real processes whose servers are killed at random times, the same for each way to recover, and tells how\n" +
			"many of the steps of an unprotected, undisturbed run are left: those that stayed, less those by which shards that came back\n" +
			"older have thrown the run back. It also prints what each way costs while nothing fails.",
		RunE: func(cmd *cobra.Command, args []string) error { return b.command(cmd, args) },
	}
	f := cmd.Flags()
	f.StringVar(&b.cfg.Model, "model", "cnn", "model to train")
	f.StringSliceVar(&b.recoveries, "recoveries", []string{"checkpoint", "scar", "stateless", "chain", "gold", "gold:2"},
		"ways to recover, as train's --recovery; chain:R and gold:R have R replicas, checkpoint:N a checkpoint every N steps; none is measured always, undisturbed")
	f.StringSliceVar(&b.cfg.Losses, "loss", []string{"kill", "lose"}, "what dies with a server: kill, its process; lose, its host's memory too; where a way keeps nothing there both are one")
	f.StringSliceVar(&b.mtbf, "mtbf", []string{"none", "30s", "10s", "4s"}, "mean times between two failures of all processes that may die together; none: no failures, which gives the steady tax")
	f.DurationVar(&b.cfg.Down, "down", time.Second, "how long a place stays empty before the next life of its process is started")
	f.DurationVar(&b.cfg.Stretch, "for", time.Minute, "time of each run in which failures come and steps count")
	f.DurationVar(&b.cfg.WarmUp, "warm-up", 10*time.Second, "time of each run before that")
	f.DurationVar(&b.cfg.Tail, "tail", 4*time.Second, "time of each run after that, once the last place is filled again: what a failure takes back comes late")
	f.IntVar(&b.cfg.Rounds, "rounds", 3, "runs of each kind, interleaved, each round with failures of its own")
	f.Uint64Var(&b.cfg.Seed, "seed", 1, "seed of the failures")
	f.BoolVar(&b.cfg.KillWorkers, "kill-workers", false, "let workers die too")
	f.IntVar(&b.cfg.Servers, "servers", 3, "servers")
	f.IntVar(&b.cfg.Workers, "workers", 4, "workers")
	f.DurationVar(&b.gradientTime, "gradient-time", 40*time.Millisecond, "time of a gradient at least, as of workers with processors of their own: what one machine has in common is then no bottleneck")
	f.BoolVar(&b.quick, "quick", false, "mlp, one round, one rate and short runs: two minutes, to see that it works")
	f.StringVar(&b.out, "out", "", "folder for table.json, report.html and goodput.svg, written after each round")
	f.StringVar(&b.picture, "picture", "", "file for the picture alone, as SVG")
	f.StringVar(&b.format, "format", "text", "text, json or benchfmt")
	return cmd
}

// shorten applies --quick to flags that the command line does not set.
func (b *benchGoodput) shorten(f *pflag.FlagSet) {
	if !b.quick {
		return
	}
	unsaid(f, map[string]func(){
		"model": func() { b.cfg.Model = "mlp" }, "rounds": func() { b.cfg.Rounds = 1 }, "mtbf": func() { b.mtbf = []string{"none", "3s"} },
		"for": func() { b.cfg.Stretch = 6 * time.Second }, "warm-up": func() { b.cfg.WarmUp = 3 * time.Second },
		"recoveries": func() { b.recoveries = []string{"checkpoint", "chain", "gold"} },
		"loss":       func() { b.cfg.Losses = []string{"lose"} }, "gradient-time": func() { b.gradientTime = 20 * time.Millisecond },
	})
}

// unsaid calls the functions of those flags that the command line does not set.
func unsaid(f *pflag.FlagSet, set map[string]func()) {
	for name, use := range set {
		if !f.Changed(name) {
			use()
		}
	}
}

func (b *benchGoodput) command(cmd *cobra.Command, args []string) error {
	b.shorten(cmd.Flags())
	if err := b.prepare(args); err != nil {
		return err
	}
	cfg := &b.cfg
	cfg.Progress = cmd.ErrOrStderr()
	var wrote error
	cfg.Round = func(rows []goodput.Row) { wrote = b.write(rows) }
	if wrote = b.write(nil); wrote != nil { // before minutes of measuring
		return wrote
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "this takes about %v\n", cfg.Takes().Round(time.Minute))
	rows, failed := goodput.Run(cmd.Context(), *cfg)
	if rows == nil {
		return failed
	}
	if b.out != "" && wrote == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", filepath.Join(b.out, "report.html"))
	}
	if err := printRows(cmd.OutOrStdout(), b.format, rows, strings.Join(goodput.Table(nil).Header, "\t"), goodputLine); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return wrote
}

// write writes the results so far to the requested folder and file. Without results it only checks
// that both can be written.
func (b *benchGoodput) write(rows []goodput.Row) error {
	if b.out != "" {
		dir, about := experiment("goodput", b.out)
		if rows == nil {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("%w: --out: %w", kintsugi.ErrUsage, err)
			}
		} else if _, err := goodput.Write(dir, about, &b.cfg, rows); err != nil {
			return err
		}
	}
	if b.picture == "" {
		return nil
	}
	if rows == nil {
		if s, err := os.Stat(filepath.Dir(b.picture)); err != nil || !s.IsDir() {
			return fmt.Errorf("%w: --picture %s: there is no folder %s; make it first", kintsugi.ErrUsage, b.picture, filepath.Dir(b.picture))
		}
		return nil
	}
	return goodput.WritePicture(b.picture, &b.cfg, rows)
}

// prepare checks the settings, and determines what each way to recover keeps in the memory of
// hosts.
func (b *benchGoodput) prepare(args []string) (err error) {
	cfg := &b.cfg
	if cfg.Rounds < 1 || cfg.Servers < 1 || cfg.Workers < 1 || len(b.recoveries) == 0 || cfg.Stretch < time.Second || cfg.WarmUp < time.Second || cfg.Down < 0 || cfg.Tail < 0 || len(cfg.Losses) == 0 {
		return fmt.Errorf("%w: bench goodput needs a round, a server, a worker, a recovery, a kind of loss, a second of warm-up one in which steps count, and no time below zero", kintsugi.ErrUsage)
	}
	if err := checkFormat(b.format); err != nil {
		return err
	}
	for _, loss := range cfg.Losses {
		if !slices.Contains([]string{"kill", "lose"}, loss) {
			return fmt.Errorf("%w: --loss %q: use kill, lose or kill,lose", kintsugi.ErrUsage, loss)
		}
	}
	for _, text := range b.mtbf {
		mean := time.Duration(0)
		if text != "none" {
			if mean, err = time.ParseDuration(text); err != nil || mean < 100*time.Millisecond {
				return fmt.Errorf("%w: --mtbf %q: use none, or a time of at least 100ms such as 10s", kintsugi.ErrUsage, text)
			}
		}
		cfg.MTBF = append(cfg.MTBF, mean)
	}
	cfg.Flags = append([]string{"--gradient-time", b.gradientTime.String()}, args...)
	for _, word := range append([]string{"none"}, b.recoveries...) {
		r := goodput.Recovery{Name: word, Flags: goodput.Flags(word)}
		t := &train.Training{}
		f := job.NewFlagSet("train")
		t.Register(f)
		if err := f.Parse(slices.Concat([]string{"--model", cfg.Model, "--servers", fmt.Sprint(cfg.Servers), "--workers", fmt.Sprint(cfg.Workers)}, r.Flags, cfg.Flags)); err != nil {
			return fmt.Errorf("%w: flags of train: %w", kintsugi.ErrUsage, err)
		}
		if _, err := t.Checked(); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
		r.Outside = t.Protects().Outside
		cfg.Recoveries = append(cfg.Recoveries, r)
	}
	cfg.Binary, err = os.Executable()
	return err
}

func goodputLine(r goodput.Row) (text, benchfmt string) {
	return strings.Join(r.Line(), "\t"),
		fmt.Sprintf("%s %d %.4f goodput %.2f useful-steps/s %.4f steady-tax %.0f lost-steps", benchName(r.Name), max(1, r.Rounds), r.Goodput, r.Useful, r.Tax, r.Lost)
}
