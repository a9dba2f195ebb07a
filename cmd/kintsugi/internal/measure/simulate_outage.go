package measure

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/sim"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// spendOutage simulates the protocol, with a long outage of all servers in the middle, and reports
// what workers have kept.
func (s *simulation) spendOutage(w io.Writer) error {
	consistency, err := agg.Preset(s.consistency)
	if err != nil {
		return err
	}
	consistency.Continue = true
	if err := consistency.Check(s.workers); err != nil {
		return err
	}
	if s.workers > 1000 || s.mean < time.Millisecond || s.mean > time.Minute || s.outage/s.mean > 1_000_000 || s.steps < 10 {
		return fmt.Errorf("%w: simulate --outage takes up to 1000 workers, ten steps, and an outage of up to a million gradients of a millisecond to a minute (--mean)", kintsugi.ErrUsage)
	}
	fmt.Fprintf(w, "%v without any server, %d workers, %s, a gradient takes %v\n", s.outage, s.workers, s.consistency, s.mean)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tGRADIENTS COMPUTED\tMOST ARRAYS KEPT BY A WORKER\tBYTES A PARAMETER\tBOUND\tHOLDS\tCOUNTED\tDROPPED\tNEXT STEP AFTER SERVERS ARE BACK")
	for _, rule := range kintsugi.KeepRules() {
		consistency.Keep = rule
		r, err := sim.Run(sim.Config{
			Seed: s.seed, Servers: 2, Workers: s.workers, Chunks: 4, Steps: kintsugi.Step(s.steps), SaveEvery: 50, Outside: true, Consistency: consistency,
			Outage: s.outage, Jitter: 200 * time.Microsecond, Compute: s.mean, Kernel: time.Millisecond,
			StartGrace: role.StartGrace, RejoinGrace: role.RejoinGrace, LeaveGrace: role.LeaveGrace, LapsesForgiven: true,
		})
		if err != nil {
			return err
		}
		o := r.Outages
		fmt.Fprintf(t, "%v\t%d\t%d\t%d\t%d\t%v\t%d\t%d\t%.2f s\n", rule, o.Computed, o.Most, 4*o.Most, 4*o.Bound, o.Most <= o.Bound, o.Counted, o.Dropped, o.Back.Seconds())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "the bound, in bytes for each parameter of the model, is that of an outage of any length")
	return err
}

// lossesAfter are the numbers of pushes of a worker since the outage after which loseInOutage
// reports the loss.
var lossesAfter = []kintsugi.Step{1, 5, 25, 100}

// loseInOutage simulates a training with real gradients that loses a part of the parameters in an
// outage. It compares the ways to use what workers have learnt alone, at equal numbers of counted
// pushes.
func (s *simulation) loseInOutage(ctx context.Context, w io.Writer) error {
	if s.workers > 1000 || s.mean < time.Millisecond || s.outage/s.mean > 100_000 || s.seeds < 1 || s.steps <= s.older || s.steps < uint64(s.workers) {
		return fmt.Errorf("%w: simulate --lose takes a part of the parameters, up to 1000 workers, an outage of up to 100000 gradients of a millisecond or more (--mean), a seed, and at least as many steps before the outage as there are workers, and more than what is lost is older by (--steps, --older)", kintsugi.ErrUsage)
	}
	consistency, err := virtual.ThroughPreset(s.consistency, s.workers)
	if err != nil {
		return err
	}
	problem, err := s.problem()
	if err != nil {
		return err
	}
	times, err := s.workerTimes()
	if err != nil {
		return err
	}
	n := kintsugi.Step(s.workers)
	t := virtual.Training{
		Workers: s.workers, Consistency: consistency, Problem: problem, Times: times, Apply: s.apply.Seconds(), Steps: lossesAfter[len(lossesAfter)-1] * n,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: s.rate},
	}
	o := virtual.Through{Step: kintsugi.Step(s.steps), Alone: int(s.outage / s.mean), Lost: s.lose, Age: kintsugi.Step(s.older)}
	fmt.Fprintf(w, "%s, %d workers, %s with a rate of %g: after %d steps %v without servers, %d gradients each; %.0f %% of the parameters come back %d steps older; %d seeds\n",
		s.model, s.workers, s.consistency, s.rate, o.Step, s.outage, o.Alone, 100*s.lose, o.Age, s.seeds)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "PATHS COUNT\tLOSS BEFORE\tAS IT COMES BACK")
	for _, k := range lossesAfter {
		fmt.Fprintf(table, "\tAFTER %d PUSHES", k*n)
	}
	fmt.Fprintln(table, "\tDROPPED AS APART")
	for _, way := range virtual.PathWays() {
		var before, back, apart float64
		after := make([][]float64, len(lossesAfter))
		for seed := range s.seeds {
			if err := ctx.Err(); err != nil {
				return err
			}
			t.Seed, o.Way = s.seed+seed, way
			t.Each = func(e kintsugi.StepEvent, params []float32) bool {
				for i, k := range lossesAfter {
					if e.Step == k*n {
						after[i] = append(after[i], problem.Loss(params))
					}
				}
				return true
			}
			was, is, dropped, err := o.Train(t)
			if err != nil {
				return err
			}
			before, back, apart = before+was/float64(s.seeds), back+is/float64(s.seeds), apart+float64(dropped)
		}
		fmt.Fprintf(table, "%v\t%.4f\t%.4f", way, before, back)
		for _, losses := range after {
			mean, deviation := stat.MeanStdDev(losses, nil)
			fmt.Fprintf(table, "\t%.4f ± %.4f", mean, record.Number(deviation))
		}
		fmt.Fprintf(table, "\t%.0f of %d\n", apart, s.seeds*uint64(s.workers))
	}
	return table.Flush()
}
