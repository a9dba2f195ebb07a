package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// early are the settings by which evaluations end a run before its last step, and by which the best
// parameters are kept.
type early struct {
	Until    string
	Patience int
	KeepBest bool
}

const notUntil = "none"

func (e *early) register(f *pflag.FlagSet) {
	f.StringVar(&e.Until, "until", notUntil, "end the run early, after a last checkpoint, once an evaluation shows this: accuracy=0.98 (or more) or loss=0.1 (or less)")
	f.IntVar(&e.Patience, "patience", 0, "end the run early, after a last checkpoint, once so many evaluations in a row had no lower loss than the best one before them; 0: never")
	f.BoolVar(&e.KeepBest, "keep-best", false, "keep the parameters of the evaluation with the lowest loss, in best.safetensors in the folder of --out")
}

// uses reports whether these settings need evaluations.
func (e *early) uses() bool { return e.KeepBest || e.Patience != 0 || e.Until != notUntil }

// checkEarly checks the settings by themselves.
func (e *early) checkEarly() error {
	if e.Patience < 0 {
		return fmt.Errorf("%w: --patience %d: it is a number of evaluations, such as 5; 0 never ends the run", kintsugi.ErrUsage, e.Patience)
	}
	_, err := parseTarget(e.Until)
	return err
}

// fits returns an error if evaluations of a model can never meet the settings. The data of the model
// are open.
func (e *early) fits(p *job.Problem) error {
	if !e.uses() {
		return nil
	}
	if p.Data == nil && (p.Program == nil || !p.Program.About.Evaluates) {
		return fmt.Errorf("%w: --until, --patience and --keep-best need evaluations, and %s has none; leave them away", kintsugi.ErrUsage, p.Called())
	}
	if t, err := parseTarget(e.Until); err == nil && t.accuracy && (p.Desc.Topics != nil || p.Desc.Factors != nil) {
		return fmt.Errorf("%w: --until %s: evaluations of %s have a loss and no accuracy; use --until loss=NUMBER", kintsugi.ErrUsage, e.Until, p.Called())
	}
	return nil
}

// target is what an evaluation must show to end a run. The zero value is never met.
type target struct {
	accuracy bool // it is a least accuracy, otherwise a greatest loss
	value    float64
	text     string // as it was given; "": there is no target
}

func parseTarget(text string) (target, error) {
	if text == notUntil {
		return target{}, nil
	}
	what, number, _ := strings.Cut(text, "=")
	x, err := strconv.ParseFloat(number, 64)
	t := target{accuracy: what == "accuracy", value: x, text: text}
	switch {
	case err != nil || what != "accuracy" && what != "loss" || math.IsNaN(x) || math.IsInf(x, 0):
		return target{}, fmt.Errorf("%w: --until %q: use accuracy=NUMBER, loss=NUMBER or %s", kintsugi.ErrUsage, text, notUntil)
	case t.accuracy && (x <= 0 || x > 1):
		return target{}, fmt.Errorf("%w: --until %s: an accuracy is above 0 and at most 1; 0.98 is 98 %%", kintsugi.ErrUsage, text)
	}
	return t, nil
}

// met reports whether an evaluation meets the target. NaN meets none.
func (t target) met(loss, accuracy float64) bool {
	switch {
	case t.text == "":
		return false
	case t.accuracy:
		return accuracy >= t.value
	}
	return loss <= t.value
}

// judge decides by the evaluations of a run whether it ends.
type judge struct {
	until    target
	patience int    // 0: without end
	every    uint64 // steps between two evaluations

	best   float64       // the lowest loss, if there is one
	at     kintsugi.Step // its step; 0: there is none
	newest uint64        // the newest period of so many steps with an evaluation that was counted
	worse  int           // number of such periods since the best evaluation
}

// add notes an evaluation and returns why the run ends, or "". After a failure, steps are evaluated
// again, and others besides, so at most one evaluation of each period counts for the patience.
func (j *judge) add(step kintsugi.Step, loss, accuracy float64) (end string) {
	period := uint64(step) / j.every
	switch {
	case !math.IsNaN(loss) && (j.at == 0 || loss < j.best):
		j.best, j.at, j.worse = loss, step, 0
	case period > j.newest:
		j.worse++
	}
	j.newest = max(j.newest, period)
	switch {
	case j.until.met(loss, accuracy):
		return fmt.Sprintf("the evaluation of step %d meets --until %s", step, j.until.text)
	case j.patience > 0 && j.worse >= j.patience:
		if j.at == 0 {
			return fmt.Sprintf("--patience %d: no evaluation has had a loss", j.patience)
		}
		return fmt.Sprintf("--patience %d: no evaluation since that of step %d had a lower loss", j.patience, j.at)
	}
	return ""
}

// endsEarly makes the watcher follow these settings, with the evaluations of earlier parts of the
// run. Call it before the run begins.
func (w *watcher) endsEarly(e *early, dir string, earlier []record.Evaluation) {
	until, _ := parseTarget(e.Until) // they are checked
	w.judge = &judge{until: until, patience: e.Patience, every: max(1, w.evalEvery)}
	for _, x := range earlier {
		w.judge.add(kintsugi.Step(x.Step), float64(x.Loss), float64(x.Accuracy))
	}
	if e.KeepBest {
		w.best = openBest(filepath.Join(dir, bestFile))
		if w.best.was != nil {
			w.note("warn", fmt.Sprintf("the best parameters of an earlier part of the run cannot be read, and the next evaluation replaces them: %v", w.best.was))
		}
	}
}

// endEarly requests the end of the run. If that fails, the next evaluation does it again.
func (w *watcher) endEarly(ctx context.Context, why string) {
	w.note("info", why+": ending the run after a last checkpoint")
	if err := w.client.PutStop(ctx, etcd.Stop{Checkpoint: true, Reason: why}); err != nil && ctx.Err() == nil {
		w.note("warn", err.Error())
	}
}
