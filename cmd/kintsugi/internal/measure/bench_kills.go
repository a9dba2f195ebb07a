package measure

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
)

func benchKillsCommand() *cobra.Command {
	cfg, format := cluster.KillsConfig{}, ""
	cmd := &cobra.Command{
		Use: "kills [-- FLAGS OF TRAIN]", Short: "Kill a process in every state and compare the runs with calm ones",
		Example: "  kintsugi bench kills --kills 20 --seed 1\n  kintsugi bench kills --kills 30 --recovery scar --servers 4 --only server\n  kintsugi bench kills --kills 50 --recovery stateless\n  kintsugi bench kills --kills 40 --recovery chain --only server\n  kintsugi bench kills --kills 40 --recovery chain --servers 3 --only server -- --replicas 3\n  kintsugi bench kills --kills 100 --seed 2 -- --model lenet",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Kills < 1 || cfg.Calm < 2 || cfg.Servers < 1 || cfg.Workers < 1 || cfg.Steps < 100 {
				return fmt.Errorf("%w: bench kills needs a kill, two calm runs, a server, a worker and 100 steps", kintsugi.ErrUsage)
			}
			if !slices.Contains([]string{"", "server", "worker", "coordinator"}, cfg.Only) {
				return fmt.Errorf("%w: --only %q: use server, worker or coordinator", kintsugi.ErrUsage, cfg.Only)
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			protects, err := protectionOf(cfg.Recovery, cfg.Servers, args)
			if err != nil {
				return err
			}
			cfg.Joins = protects.Replicas > 1
			cfg.Exact = protects.Outside || protects.Replicas > 1 && protects.Copies == 0
			cfg.Partial = (protects.Running != nil || protects.Copies > 0) && !cfg.Exact
			cfg.Flags, cfg.Progress = append([]string{"--model", "mlr", "--checkpoint-every", "20"}, args...), cmd.ErrOrStderr()
			rows, err := cluster.Kills(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, killsTable, killsLine); err != nil {
				return err
			}
			if cfg.Partial {
				kept, touched := 0, 0
				for _, r := range rows {
					kept, touched = kept+r.Kept, touched+r.Touched
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%d shards have outlived the loss of another one; in %d of them any bit has changed\n", kept, touched)
				runs, foretold, told, predicted, measured, deviation := cluster.Foretold(rows)
				fmt.Fprintf(cmd.ErrOrStderr(), "rework of %d partial restores: predicted in %d and measured in %d", runs, foretold, told)
				if !math.IsNaN(measured) {
					fmt.Fprintf(cmd.ErrOrStderr(), "; in the mean of those that were both predicted %.2f steps, measured %.2f ± %.2f", predicted, measured, deviation)
				}
				fmt.Fprintln(cmd.ErrOrStderr())
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "killed, drawn with seed %d: %s\n", cfg.Seed, cluster.States(rows))
			damaged := 0
			for _, r := range rows {
				damaged += r.Damaged
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "published checkpoints have %d damaged places\n", damaged)
			took := func(of string, rows []cluster.KillsRow) {
				p50, p99, longest := cluster.Recoveries(rows)
				fmt.Fprintf(cmd.ErrOrStderr(), "from the kill of %s to the next step: p50 %.3f s, p99 %.3f s, at most %.3f s\n", of, p50, p99, longest)
			}
			took("a process", rows)
			took("a server", slices.DeleteFunc(slices.Clone(rows), func(r cluster.KillsRow) bool { return !strings.HasPrefix(r.Part, "server/") }))
			for _, r := range rows {
				if !r.OK {
					return fmt.Errorf("%s, seed %d, ended at step %d with %d steps lost, loss %v, %d damaged places and parameters %s; calm runs end with %v ± %v, with its seed with parameters %s",
						r.Fault, r.Seed, r.Steps, r.Lost, r.Loss, r.Damaged, r.Bits, r.Mean, r.Allowed, r.CalmBits)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Kills, "kills", 20, "runs with a kill; they go through the states of servers and workers, and the coordinator, in turn")
	f.StringVar(&cfg.Recovery, "recovery", "checkpoint", "how lost shards come back, as train's --recovery")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the choice of victims")
	f.StringVar(&cfg.Only, "only", "", "kill processes of this role only: server, worker or coordinator (default: of all)")
	f.IntVar(&cfg.Calm, "calm", 10, "undisturbed runs to compare with")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Steps, "steps", 200, "steps of each run")
	f.BoolVar(&cfg.Loaded, "loaded", false, "keep all cores busy with another process meanwhile")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const killsTable = "SEED\tPART\tSTATE\tAT STEP\tNEXT STEP AFTER\tSTEPS LOST\tFINAL LOSS\tCALM MEAN ± 3 SD\tPARAMETERS\tUNTOUCHED\tREWORK PREDICTED\tMEASURED\tOK"

func killsLine(r cluster.KillsRow) (text, benchfmt string) {
	untouched, predicted, measured, bits := "–", "–", "–", "–"
	switch {
	case r.CalmBits != "" && r.Bits == r.CalmBits:
		bits = "same bits"
	case r.CalmBits != "":
		bits = "OTHER BITS"
	}
	if r.Kept > 0 {
		untouched = fmt.Sprintf("%d of %d", r.Kept-r.Touched, r.Kept)
		predicted, measured = "unknown", "unknown"
	}
	if r.Predicted.Known() {
		predicted = fmt.Sprintf("%.2f", r.Predicted)
	}
	if r.Measured.Known() {
		measured = fmt.Sprintf("%.2f ± %.2f", r.Measured, r.Error)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%.2f s\t%d\t%.5f\t%.5f ± %.5f\t%s\t%s\t%s\t%s\t%v", r.Seed, r.Part, r.State, r.Step, r.Recovery, r.Lost, r.Loss, r.Mean, r.Allowed,
			bits, untouched, predicted, measured, r.OK),
		fmt.Sprintf("%s/%s/%s 1 %.3f s-to-next-step %d lost-steps", benchName(r.Name), strings.ReplaceAll(r.Part, "/", "-"), r.State, r.Recovery, r.Lost)
}
