package measure

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/drawn"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

func benchDrawnCommand() *cobra.Command {
	cfg, store, format := drawn.Config{}, "", ""
	cmd := &cobra.Command{
		Use: "drawn", Short: "Draw the settings and the faults of runs, and check what each promises", Args: job.ProgramAfterDash,
		Long: "Drawn makes small runs, one after the other. The settings and the faults of each are drawn; some runs are killed as a whole\n" +
			"and resumed. For half of these, servers and recovery are drawn anew then, and sometimes workers.\n" +
			"Each must make all its steps and leave a whole checkpoint, and no process may crash by itself. Where servers find what they held, no step may be taken back. If each step has\n" +
			"counted all gradients, the parameters must be those of the same run without faults, to the last bit. With --exact, almost all runs must have these. A run that breaks a promise keeps its\n" +
			"folder. With --from and --runs 1 it is made again, though its faults may come at other moments.",
		Example: "  kintsugi bench drawn --runs 50\n  kintsugi bench drawn --seed 1 --from 17 --runs 1\n" +
			"  kintsugi bench drawn --exact --tls certs --store s3://bucket/tries\n" +
			"  kintsugi bench drawn --runs 20 -- python3 train.py     # a model of its own, in place of drawn ones",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Runs < 1 || cfg.From < 1 {
				return fmt.Errorf("%w: bench drawn needs a run; the first one has the number 1", kintsugi.ErrUsage)
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			if cfg.Store, err = drawnStore(cmd.Context(), store, cfg.TLS); err != nil {
				return err
			}
			cfg.Progress = cmd.ErrOrStderr()
			rows, err := drawn.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, drawnTable, drawnLine); err != nil {
				return err
			}
			broke, same := 0, 0
			for _, r := range rows {
				broke += min(len(r.Broken), 1)
				if r.CalmBits != "" && r.Bits == r.CalmBits {
					same++
				}
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d runs, drawn with seed %d: %d had to end with the parameters of the undisturbed run, and did\n", len(rows), cfg.Seed, same)
			if broke > 0 {
				return fmt.Errorf("%d of %d runs broke a promise", broke, len(rows))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Runs, "runs", 20, "runs")
	f.IntVar(&cfg.From, "from", 1, "number of the first run of the seed")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of settings and faults")
	f.BoolVar(&cfg.Exact, "exact", false, "draw only what leaves the parameters as they are, so that almost all runs must end with those of the undisturbed one")
	f.StringVar(&store, "store", "", "store of the checkpoints of all runs, as in train --store; what runs write there is removed again, unless one breaks a promise (default: the folder of each run)")
	f.StringVar(&cfg.TLS, "tls", "", "folder of certificates that all runs use, as in train --tls")
	f.StringArrayVar(&cfg.Program, "program", nil, "program whose model is trained, in place of drawn ones; repeat the flag for each of its arguments, or give all of them after --")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// drawnStore returns what opens parts of a store, after it has been tried whether runs could use it.
func drawnStore(ctx context.Context, store, tls string) (drawn.Store, error) {
	if store == "" {
		return nil, nil
	}
	var creds *mtls.Credentials // of the memory of another process
	if tls != "" {
		var err error
		if creds, err = mtls.Open(tls, mtls.Operator, mtls.Any, nil); err != nil {
			return nil, err
		}
	}
	at, err := job.OpenPlace(ctx, store, creds)
	if err != nil {
		return nil, err
	}
	if err := at.Begins(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, part string) (drawn.Place, error) {
		flag, err := job.Below(store, part)
		if err != nil {
			return drawn.Place{}, err
		}
		at, err := job.OpenPlace(ctx, flag, creds)
		return drawn.Place{Flag: flag, FS: at.FS, Dir: at.Dir}, err
	}, nil
}

const drawnTable = "RUN\tKILLED AS A WHOLE\tFAILURES\tNEXT STEP AFTER, AT MOST\tSTEPS LOST\tPARAMETERS\tPROMISES\tFLAGS"

func drawnLine(r drawn.Row) (text, benchfmt string) {
	seconds := func(n record.Number, format string) string {
		if !n.Known() {
			return ""
		}
		return fmt.Sprintf(format, n)
	}
	bits := ""
	switch {
	case r.CalmBits != "" && r.Bits == r.CalmBits:
		bits = "same bits"
	case r.CalmBits != "":
		bits = "OTHER BITS"
	}
	return fmt.Sprintf("%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s", r.Number, seconds(r.Interrupted, "%.2f s"), r.Failures, seconds(r.Longest, "%.3f s"), r.Lost, bits, cmp.Or(strings.Join(r.Broken, "; "), "kept"), r.Flags),
		fmt.Sprintf("%s %d %.4f longest-s %d lost-steps %d broken", benchName(fmt.Sprintf("%s/%d/%d", r.Name, r.Seed, r.Number)), 1, r.Longest, r.Lost, len(r.Broken))
}
