package measure

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

func benchFailoverCommand() *cobra.Command {
	cfg, loaded, format := cluster.FailoverConfig{}, "no,yes", ""
	cmd := &cobra.Command{
		Use: "failover [-- FLAGS OF TRAIN]", Short: "Kill servers and time the next committed step, also on a busy machine",
		Example: "  kintsugi bench failover\n  kintsugi bench failover --recoveries chain --kills 10 --loaded yes -- --codec int8",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Kills < 1 || cfg.Servers < 1 || cfg.Workers < 1 || cfg.Every < 50 || len(cfg.Recoveries) == 0 {
				return fmt.Errorf("%w: bench failover needs a kill, a server, a worker, a recovery and 50 steps between two kills", kintsugi.ErrUsage)
			}
			switch loaded {
			case "no":
				cfg.Loaded = []bool{false}
			case "yes":
				cfg.Loaded = []bool{true}
			case "no,yes":
				cfg.Loaded = []bool{false, true}
			default:
				return fmt.Errorf("%w: --loaded %q: use no, yes or no,yes", kintsugi.ErrUsage, loaded)
			}
			if err := checkSurvival(format, cfg.Model, cfg.Servers, cfg.Workers, cfg.Recoveries...); err != nil {
				return err
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = args, cmd.ErrOrStderr()
			rows, err := cluster.Failover(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, failoverTable, failoverLine); err != nil {
				return err
			}
			for _, r := range rows {
				if !r.OK {
					return fmt.Errorf("%s: p50 %.3f s, at most %.3f s, %d steps lost: that is more than it may be", r.Name, r.P50, r.Longest, r.Lost)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Kills, "kills", 50, "kills of each row")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the choice of victims and moments")
	f.StringSliceVar(&cfg.Recoveries, "recoveries", []string{"chain", "chain:paper", "stateless", "checkpoint"}, "ways to recover")
	f.StringVar(&loaded, "loaded", loaded, "beside a process that keeps all cores busy: no, yes or no,yes, first without and then with")
	f.StringVar(&cfg.Model, "model", "mlp", "model to train")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Every, "every", 300, "steps from one kill to the next: enough for a server to be back")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// checkSurvival refuses settings that no run can have. It is called before minutes of measuring.
func checkSurvival(format, model string, servers, workers int, recoveries ...string) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	for _, recovery := range recoveries {
		t := &train.Training{}
		t.Register(job.NewFlagSet("bench"))
		t.Model, t.Servers, t.Workers, t.Recovery = model, servers, workers, recovery
		if err := t.Check(); err != nil {
			return err
		}
	}
	return nil
}

// protectionOf returns the protection that a recovery means in train, with the given number of
// servers and other flags.
func protectionOf(recovery string, servers int, flags []string) (job.Protection, error) {
	t := &train.Training{}
	f := job.NewFlagSet("bench")
	t.Register(f)
	t.Recovery, t.Servers = recovery, servers
	if err := f.Parse(flags); err != nil {
		return job.Protection{}, fmt.Errorf("%w: flags of train: %w", kintsugi.ErrUsage, err)
	}
	t.PlaceOnOneHost()
	return t.Protection()
}

const failoverTable = "RECOVERY\tLOADED\tMODEL\tSTEP\tKILLS\tNEXT STEP AFTER p50\tp99\tMAX\tSTEPS LOST\tPUBLISHED SYSTEM\tOK"

// published is how long the system of Cao, Luo, Gan and Jinesh (2024) took.
var published = map[string]string{"chain": "10 to 14 s", "chain:paper": "10 to 14 s", "checkpoint": "23 to 24 s, 20 of them a pause", "stateless": "25 to 28 s, 20 of them a pause"}

func failoverLine(r cluster.FailoverRow) (text, benchfmt string) {
	theirs, ok := published[r.Recovery]
	if !ok {
		theirs = "–"
	}
	return fmt.Sprintf("%s\t%v\t%s\t%.1f ms\t%d\t%.3f s\t%.3f s\t%.3f s\t%d\t%s\t%v", r.Recovery, r.Loaded, r.Model, r.Step, r.Kills, r.P50, r.P99, r.Longest, r.Lost, theirs, r.OK),
		fmt.Sprintf("%s %d %.4f p50-s %.4f max-s %d lost-steps", benchName(r.Name), r.Kills, r.P50, r.Longest, r.Lost)
}

func benchAlarmsCommand() *cobra.Command {
	cfg, format := cluster.AlarmsConfig{}, ""
	cmd := &cobra.Command{
		Use: "alarms [-- FLAGS OF TRAIN]", Short: "Count needless failovers of a run with chains on a busy machine",
		Example: "  kintsugi bench alarms\n  kintsugi bench alarms --for 1m --model cnn --loaded=false",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.For < 10*time.Second || cfg.Workers < 1 || cfg.Replicas < 2 {
				return fmt.Errorf("%w: bench alarms needs ten seconds, a worker and two replicas", kintsugi.ErrUsage)
			}
			if err := checkSurvival(format, cfg.Model, cfg.Servers, cfg.Workers, "chain"); err != nil {
				return err
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = args, cmd.ErrOrStderr()
			row, err := cluster.Alarms(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, []cluster.AlarmsRow{row}, alarmsTable, alarmsLine); err != nil {
				return err
			}
			if !row.OK {
				return fmt.Errorf("%d views in a run in which nobody has failed", row.Views)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&cfg.For, "for", 10*time.Minute, "how long to train")
	f.BoolVar(&cfg.Loaded, "loaded", true, "keep all cores busy with another process meanwhile")
	f.StringVar(&cfg.Model, "model", "mlp", "model to train")
	f.IntVar(&cfg.Servers, "servers", 3, "servers")
	f.IntVar(&cfg.Replicas, "replicas", 2, "replicas of each shard")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const alarmsTable = "MODEL\tLOADED\tSECONDS\tSTEPS\tFALSE FAILOVERS\tSTEP p50\tp99\tMAX\tOK"

func alarmsLine(r cluster.AlarmsRow) (text, benchfmt string) {
	return fmt.Sprintf("%s\t%v\t%.0f\t%d\t%d\t%.1f ms\t%.1f ms\t%.1f ms\t%v", r.Model, r.Loaded, r.Seconds, r.Steps, r.Views, r.P50, r.P99, r.Longest, r.OK),
		fmt.Sprintf("%s %d %d failovers %.3f max-step-ms", benchName(r.Name), r.Steps, r.Views, r.Longest)
}

func benchTaxCommand() *cobra.Command {
	cfg, format, check := cluster.TaxConfig{}, "", false
	cmd := &cobra.Command{
		Use: "tax [-- FLAGS OF TRAIN]", Short: "Measure what each way to recover costs while nothing fails",
		Example: "  kintsugi bench tax\n  kintsugi bench tax --models cnn --recoveries none,chain:2 --rounds 7 -- --data fashion",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Servers < 1 || cfg.Workers < 1 || cfg.Rounds < 1 || cfg.Steps < 50 || len(cfg.Models) == 0 || len(cfg.Recoveries) == 0 {
				return fmt.Errorf("%w: bench tax needs a model, a recovery, a server, a worker, a round and 50 steps", kintsugi.ErrUsage)
			}
			if err := cfg.Check(func(model, recovery string, servers int) error {
				return checkSurvival(format, model, servers, cfg.Workers, recovery)
			}); err != nil {
				return err
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress, cfg.Processors = args, cmd.ErrOrStderr(), job.Cores()
			rows, err := cluster.Tax(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, taxTable, taxLine); err != nil {
				return err
			}
			if format == "text" {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), taxNote, cfg.Processors); err != nil {
					return err
				}
			}
			if !check {
				return nil
			}
			return cluster.CheckTax(rows)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Models, "models", []string{"cnn", "mlp"}, "models to train")
	f.StringSliceVar(&cfg.Recoveries, "recoveries", taxed(), "ways to recover; chain:3 and gold:3: three replicas, on at least as many servers")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Steps, "steps", 300, "steps of each run")
	f.IntVar(&cfg.Rounds, "rounds", 5, "interleaved runs of each")
	f.BoolVar(&check, "check", true, "fail if two replicas of each shard take more than 15 % of the steps per second of cnn")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// taxed returns the recoveries to measure.
func taxed() []string {
	list := []string{"none", "checkpoint", "scar", "stateless", "chain:2", "chain:3", "chain:next", "chain:paper"}
	if checkSurvival("text", "mlp", 2, 4, "gold") == nil {
		list = append(list, "gold", "gold:2")
	}
	return list
}

const taxTable = "MODEL\tRECOVERY\tSERVERS\tSTEPS/s\tOF WITHOUT (min, max)\tPROCESSORS A STEP\tOF WITHOUT\tCORES BUSY\tA STEP LONGER BY\tOF IT CONTENTION\tOF WITHOUT, BUT FOR THAT\tOK"

// taxNote says how to read the contention.
const taxNote = "contention: what a step takes more of the processors than without, shared by all %d of them: at most that part of the tax would not be there on hosts of their own\n"

func taxLine(r cluster.TaxRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%s\t%d\t%.1f\t%.3f (%.3f, %.3f)\t%.2f ms\t%.3f\t%.2f\t%.2f ms\t%.0f %%\t%.3f\t%v", r.Model, r.Recovery, r.Servers, r.Steps, r.Ratio, r.RatioMin, r.RatioMax,
		r.CPU, r.CPURatio, r.Cores, r.Extra, 100*r.Contention, r.Apart, r.OK)
	return text, fmt.Sprintf("%s %d %.2f steps/s %.4f ratio %.3f cpu-ms/step %.4f cpu-ratio", benchName(r.Name), r.Rounds, r.Steps, r.Ratio, r.CPU, r.CPURatio)
}

func benchLoadCommand() *cobra.Command {
	cores, long := 0, time.Duration(0)
	cmd := &cobra.Command{
		Use: "load", Short: "Keep cores busy, to measure beside other load", Args: cli.NoArgs,
		Example: "  kintsugi bench load --cores 2 --for 1m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cores < 1 || long <= 0 {
				return fmt.Errorf("%w: bench load needs a core and a time", kintsugi.ErrUsage)
			}
			bench.Spin(cmd.Context(), cores, long)
			return nil
		},
	}
	cmd.Flags().IntVar(&cores, "cores", job.Cores(), "cores to keep busy")
	cmd.Flags().DurationVar(&long, "for", time.Minute, "how long")
	return cmd
}
