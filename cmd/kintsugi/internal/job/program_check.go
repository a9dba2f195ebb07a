package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// ProgramCommand returns the command that checks and describes programs.
func ProgramCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "program", Short: "Check or describe a program that computes your own model", Args: cli.NoArgs, Example: "  kintsugi program check -- python3 train.py",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(programDescribeCommand(), programCheckCommand())
	return cmd
}

// programSettings adds the flags that determine what the program is asked.
func programSettings(cmd *cobra.Command, s *Settings) {
	f := cmd.Flags()
	f.StringArrayVar(&s.Program, "program", nil, "program, then its arguments, one by one; or all of them after --")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of everything random")
	f.IntVar(&s.Workers, "workers", 4, "workers of the run")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := ProgramAfterDash(cmd, args); err != nil {
			return err
		}
		if len(s.Program) == 0 || s.Workers < 1 {
			return fmt.Errorf("%w: name a program, as in %s -- python3 train.py, and at least one of --workers", kintsugi.ErrUsage, cmd.CommandPath())
		}
		return nil
	}
}

func programDescribeCommand() *cobra.Command {
	s, out := Settings{}, ""
	cmd := &cobra.Command{
		Use: "describe", Short: "Write a description of what a program trains, for servers that do not run it",
		Example: "  kintsugi program describe --out model.described -- python3 train.py",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &Problem{}
			if _, err := p.describeProgram(&s); err != nil {
				return err
			}
			defer p.Close()
			err := record.WriteFile(out, func(w io.Writer) error { return program.Write(w, p.Program.About, p.Program.Initial) })
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %d parameters\n", out, p.Program.About.Name, p.Layout.Values)
			}
			return err
		},
	}
	programSettings(cmd, &s)
	cmd.Flags().StringVar(&out, "out", DescribedFile, "file to write")
	return cmd
}

func programCheckCommand() *cobra.Command {
	var s Settings
	cmd := &cobra.Command{
		Use: "check", Short: "Check that a program repeats its gradients bit for bit, and that they are gradients of its loss",
		Long: "Check asks a program for the gradient of one batch several times, in one process and in another, and compares\n" +
			"their bits. It also compares the slope of the loss along each tensor's gradient with how the loss really changes. It ends with an error\n" +
			"if the program does not keep its promise.",
		Example: "  kintsugi program check -- python3 train.py",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &Problem{}
			d, err := p.describeProgram(&s)
			if err != nil {
				return err
			}
			defer p.Close()
			if err := p.checkSuggestions(&s, d); err != nil {
				return err
			}
			return p.Program.check(cmd.Context(), &s, cmd.OutOrStdout())
		},
	}
	programSettings(cmd, &s)
	return cmd
}

// checkSuggestions applies the suggestions of a program, and returns what train would report about
// them.
func (p *Problem) checkSuggestions(s *Settings, d model.Defaults) error {
	s.Momentum, s.Warmup, s.WeightDecay = Suggested, Suggested, Suggested
	if err := p.suggest(s, d); err != nil {
		return err
	}
	_, err := compress.Parse(s.Codec)
	return err
}

// Two slopes agree if they differ by no more than these fractions: of the gradient's slope, and of
// the norm of the whole gradient. Losses are float32, and models have kinks.
const (
	slopesAgree = 0.05
	slopesNoise = 0.002
)

// check checks a program and writes the findings.
func (m *Program) check(ctx context.Context, s *Settings, w io.Writer) error {
	m.describe(w)
	running, err := m.take(ctx, s)
	if err != nil {
		return err
	}
	defer running.Close()
	first := make([]float32, len(m.Initial))
	loss, took, err := m.timed(ctx, s, running, m.Initial, first)
	if err == nil {
		err = errors.Join(m.finite(first), m.touches(running))
	}
	if err != nil {
		return err
	}
	var bad error
	say := func(what, advice string, equal bool) {
		how := "equal to the bit"
		if !equal {
			how = "another one"
			bad = errors.Join(bad, fmt.Errorf("the gradient of one batch at the same parameters is another one %s: %s", what, advice))
		}
		fmt.Fprintf(w, "again, %s: %s\n", what, how)
	}
	times := []time.Duration{took}
	again, equal := make([]float32, len(first)), true
	for range 4 {
		_, took, err := m.timed(ctx, s, running, m.Initial, again)
		if err != nil {
			return err
		}
		times, equal = append(times, took), equal && slices.Equal(first, again)
	}
	slices.Sort(times[1:])
	fmt.Fprintf(w, "a gradient takes %v, the first one %v; its loss is %.6g, its norm %.4g\n", times[3].Round(10*time.Microsecond), times[0].Round(10*time.Microsecond), loss, norm(first))
	say("in the same process", "what is random about it must come from the seed of the batch, and nothing may be kept from the last one", equal)
	other, err := m.start(ctx, s, s.Seed)
	if err != nil {
		return err
	}
	_, _, err = m.timed(ctx, s, other, m.Initial, again)
	if err = errors.Join(err, other.Close()); err != nil {
		return err
	}
	say("in another process", seedTheStart, slices.Equal(first, again))
	if err := m.checkSlopes(ctx, s, running, first, loss, w); err != nil {
		bad = errors.Join(bad, err)
	}
	if m.About.Evaluates {
		begin := time.Now()
		loss, accuracy, n, err := running.Evaluate(ctx, m.Initial)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "an evaluation takes %v:", time.Since(begin).Round(10*time.Microsecond))
		if !math.IsNaN(loss) {
			fmt.Fprintf(w, " loss %.6g,", loss)
		}
		if !math.IsNaN(accuracy) {
			fmt.Fprintf(w, " accuracy %.4g,", accuracy)
		}
		fmt.Fprintf(w, " of %d examples\n", n)
	}
	return bad
}

// timed computes the first gradient of the run and measures its time.
func (m *Program) timed(ctx context.Context, s *Settings, running *program.Program, params, grads []float32) (loss float64, took time.Duration, err error) {
	begin := time.Now()
	loss, _, err = m.gradient(s, running)(ctx, params, grads, kintsugi.PushID{})
	return loss, time.Since(begin), err
}

// checkSlopes compares, for each tensor, the slope of the loss along the gradient, which is the
// gradient's norm, with the difference of the losses a little before and after.
func (m *Program) checkSlopes(ctx context.Context, s *Settings, running *program.Program, grads []float32, loss float64, w io.Writer) error {
	whole := norm(grads)
	if !(whole > 0) || math.IsInf(whole, 0) || math.IsNaN(loss) {
		return fmt.Errorf("the loss of the first gradient is %g, and its norm %g: from there no step leads anywhere", loss, whole)
	}
	reach := 0.003 * max(math.Abs(loss), 1e-3) / whole // along the whole gradient, the loss changes by this fraction: enough for float32, with few kinks on the way
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "  tensor\tslope by the gradient\tby the loss")
	var wrong []string
	lo := 0
	for _, t := range m.About.Tensors {
		part := grads[lo : lo+t.Values()]
		said := norm(part)
		measured, agrees, err := agreeing(said, slopesNoise*whole, math.Abs(loss), reach, func(reach float64) (float64, error) {
			return m.slope(ctx, s, running, lo, part, reach)
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(tab, "  %s\t%.5g\t%.5g\n", t.Name, said, measured)
		if !agrees {
			wrong = append(wrong, t.Name)
		}
		lo += t.Values()
	}
	_ = tab.Flush() // output errors are ignored, as for every line here
	if len(wrong) > 0 {
		return fmt.Errorf("the loss does not change along the gradient as the gradient says: that of %s is not the gradient of this loss, or the loss has too few bits to tell, as in bfloat16", strings.Join(wrong, ", "))
	}
	return nil
}

// agreeing measures a slope at smaller and smaller distances until it agrees with the gradient's,
// within slopesAgree and some noise: models with many kinks, as with ReLU, have some of them within
// a long distance. It gives up when the change of the loss is so small that float32 may not show
// it, and returns the first measured slope.
func agreeing(said, noise, loss, reach float64, slope func(reach float64) (float64, error)) (measured float64, agrees bool, err error) {
	first := math.NaN()
	for {
		measured, err := slope(reach)
		if err != nil {
			return 0, false, err
		}
		if math.Abs(measured-said) <= slopesAgree*said+noise {
			return measured, true, nil
		}
		if math.IsNaN(first) {
			first = measured
		}
		if reach /= 8; !(2*reach*said >= loss/(1<<16)) { // the last bit of a float32 is 2⁻²⁴ of the value
			return first, false, nil
		}
	}
}

// slope measures the slope of the loss along the gradient of a tensor, whose values begin at lo. If
// the gradient is 0, it uses the direction of alternating ones and minus ones.
func (m *Program) slope(ctx context.Context, s *Settings, running *program.Program, lo int, part []float32, reach float64) (float64, error) {
	length := norm(part)
	at, unused := make([]float32, len(m.Initial)), make([]float32, len(m.Initial))
	var losses [2]float64
	for i, side := range []float64{-1, 1} {
		copy(at, m.Initial)
		for j, g := range part {
			d := float64(g) / length
			if length == 0 {
				d = (1 - 2*float64(j%2)) / math.Sqrt(float64(len(part)))
			}
			at[lo+j] += float32(side * reach * d)
		}
		var err error
		if losses[i], _, err = m.timed(ctx, s, running, at, unused); err != nil {
			return 0, err
		}
	}
	return (losses[1] - losses[0]) / (2 * reach), nil
}

// describe writes what the program trains.
func (m *Program) describe(w io.Writer) {
	a := m.About
	fmt.Fprintf(w, "%s: %d parameters", a.Name, a.Values())
	if a.Examples > 0 {
		fmt.Fprintf(w, ", %d examples", a.Examples)
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rest := m.Initial
	for _, t := range a.Tensors {
		values := rest[:t.Values()]
		rest = rest[t.Values():]
		fmt.Fprintf(tab, "  %s\t%v\tinitially %.4g to %.4g\n", t.Name, t.Shape, slices.Min(values), slices.Max(values))
	}
	_ = tab.Flush() // output errors are ignored, as for every line here
}
