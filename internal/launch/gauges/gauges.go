// Package gauges exports a run to Prometheus: it turns recorded events into metrics whose names
// begin with kintsugi_. Begin reading at Run.Add.
//
// The metrics follow the conventions of Prometheus: base units, counters that end with _total, and
// nothing that a query can compute. Counters begin at 0 when the process starts, as rate() and
// increase() expect.
package gauges

import (
	"math"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Run holds the metrics of one run. It is safe for concurrent use.
type Run struct {
	registry *prometheus.Registry

	step, wanted, line, view                                      prometheus.Gauge
	loss, norm, quota, workers, staleness, testLoss, testAccuracy prometheus.Gauge
	savedStep, savedTime, atRisk, over                            prometheus.Gauge
	members                                                       *prometheus.GaugeVec
	steps, lost, examples, pushed, pulled, partials, clipped      prometheus.Counter
	gradients, failures, saves, savedBytes                        *prometheus.CounterVec
	wait, apply, recovery                                         prometheus.Histogram
	saveSeconds                                                   *prometheus.HistogramVec

	start float64 // start of the record, in Unix seconds
	on    uint64  // line of the newest view or step
}

// New returns the metrics of a run. steps is the number of its steps, 0 if no end is known; release
// and commit identify the program.
func New(release, commit string, steps uint64) *Run {
	r := &Run{registry: prometheus.NewRegistry()}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "kintsugi", Name: name, Help: help})
		r.registry.MustRegister(g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "kintsugi", Name: name, Help: help})
		r.registry.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "kintsugi", Name: name, Help: help}, labels)
		r.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, first float64, n int) prometheus.Histogram {
		h := prometheus.NewHistogram(histogramOpts(name, help, first, n))
		r.registry.MustRegister(h)
		return h
	}

	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kintsugi", Name: "build_info", Help: "1; its labels say what is running."}, []string{"release", "commit", "goversion"})
	build.WithLabelValues(release, commit, runtime.Version()).Set(1)
	r.members = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kintsugi", Name: "members", Help: "Processes of the run that hold a lease, by role."}, []string{"role"})
	r.saveSeconds = prometheus.NewHistogramVec(histogramOpts("checkpoint_duration_seconds", "How long saves took, from the version on.", 1.0/64, 16), []string{"kind"})
	r.registry.MustRegister(build, r.members, r.saveSeconds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	r.step = gauge("step", "Newest released step of the line that counts.")
	r.wanted = gauge("steps_wanted", "Steps that the run was asked for; 0: no end is known.")
	r.line = gauge("line", "Line of the newest step: grows with each restore.")
	r.view = gauge("view", "Number of the newest view: grows whenever servers come, go or change places.")
	r.over = gauge("over", "1 if the run has ended.")
	r.loss = gauge("loss", "Mean loss of the gradients of the newest step.")
	r.norm = gauge("gradient_norm", "Norm of the mean gradient of the newest step.")
	r.testLoss = gauge("test_loss", "Loss of the newest evaluation; NaN before the first.")
	r.testAccuracy = gauge("test_accuracy_ratio", "Accuracy of the newest evaluation, 0 to 1; NaN without one.")
	r.quota = gauge("quota", "Gradients that the newest step waited for.")
	r.workers = gauge("workers_admitted", "Workers whose gradients may be counted.")
	r.staleness = gauge("staleness_steps", "Greatest staleness among the gradients of the newest step.")
	r.savedStep = gauge("checkpoint_step", "Step of the newest full checkpoint.")
	r.savedTime = gauge("checkpoint_timestamp_seconds", "When the version of the newest full checkpoint was the present one, in seconds since 1970.")
	r.atRisk = gauge("at_risk_steps", "Steps that the loss of one server would cost now, of the one whose would cost most; NaN: not known.")

	r.steps = counter("steps_total", "Released steps, those that were taken again included.")
	r.lost = counter("lost_steps_total", "Released steps that restores took back.")
	r.examples = counter("examples_total", "Examples of the gradients that steps counted.")
	r.pushed = counter("pushed_bytes_total", "Bytes of gradients that servers received.")
	r.pulled = counter("pulled_bytes_total", "Bytes of parameters that servers sent.")
	r.partials = counter("partial_restores_total", "Shards that came back alone, older than the others.")
	r.gradients = counters("gradients_total", "Gradients that ended, by fate: counted, late, kept (computed in an outage and counted) or dropped.", "fate")
	r.clipped = counter("clipped_gradients_total", "Counted gradients that were longer than --clip-norm, and were scaled down to it.")
	r.failures = counters("failures_total", "Processes that were lost, by role, and whether they had notice.", "role", "announced")
	r.saves = counters("checkpoints_total", "Saves that ended, by kind (full, or running: some chunks of a shard) and result (saved or failed).", "kind", "result")
	r.savedBytes = counters("checkpoint_bytes_total", "Bytes that saves wrote.", "kind")

	r.wait = histogram("step_wait_seconds", "From the release of the step before to the commit of a step.", 1.0/2048, 18)
	r.apply = histogram("step_apply_seconds", "From the commit of a step to its release.", 1.0/2048, 18)
	r.recovery = histogram("recovery_seconds", "From a failure to the next step that was committed after it.", 1.0/64, 16)

	r.wanted.Set(float64(steps))
	r.testLoss.Set(math.NaN())
	r.testAccuracy.Set(math.NaN())
	r.atRisk.Set(math.NaN())
	for _, fate := range []string{"counted", "late", "kept", "dropped"} { // initialise them: rate() of a missing counter is not 0
		r.gradients.WithLabelValues(fate)
	}
	for _, role := range []string{"server", "worker"} {
		r.failures.WithLabelValues(role, "true")
		r.failures.WithLabelValues(role, "false")
	}
	for _, kind := range []string{"full", "running"} {
		r.saves.WithLabelValues(kind, "saved")
		r.saves.WithLabelValues(kind, "failed")
	}
	return r
}

// histogramOpts returns a histogram with n buckets, each twice the one before, beginning with
// first.
func histogramOpts(name, help string, first float64, n int) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: "kintsugi", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2, n)}
}

// Handler serves the metrics in the formats of Prometheus.
func (r *Run) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})
}

// Members sets the number of processes of a role that hold a lease.
func (r *Run) Members(role string, n int) { r.members.WithLabelValues(role).Set(float64(n)) }

// Over marks the run as ended.
func (r *Run) Over() { r.over.Set(1) }

// GoOn shows the state of a run whose record is continued and began at start, before new events
// happen. Counters begin at 0.
func (r *Run) GoOn(run *record.Run, start time.Time) {
	r.start = float64(start.UnixNano()) / 1e9
	if n := len(run.Views); n > 0 {
		r.view.Set(float64(run.Views[n-1].Number))
	}
	if run.Outline.Steps > 0 {
		r.newest(&run.Newest)
	}
	if n := len(run.Evaluations); n > 0 {
		r.evaluated(&run.Evaluations[n-1])
	}
	for i := range run.Checkpoints {
		if c := &run.Checkpoints[i]; c.Error == "" && !c.Running {
			r.savedAs(c)
		}
	}
}

// Add processes an event. Events must be added in the order in which they are recorded.
func (r *Run) Add(e record.Event) {
	switch e := e.(type) {
	case *record.Header:
		r.start = float64(e.Start.UnixNano())/1e9 - e.Seconds
	case *record.Step:
		r.released(e)
	case *record.View:
		r.view.Set(float64(e.Number))
		r.line.Set(float64(e.Line))
		if e.Keeps == 0 && e.Line != r.on { // another view of the same line takes nothing back
			r.step.Set(float64(e.RestoredStep))
		}
		r.on = e.Line
	case *record.Failure:
		role, _, _ := strings.Cut(e.Part, "/")
		r.failures.WithLabelValues(role, word(e.Announced, "true", "false")).Inc()
	case *record.Recovery:
		// A recovery that made up for lost steps is recorded twice: when steps go on, and when they
		// have been repeated.
		if e.LostSteps == 0 || !e.CaughtUpSeconds.Known() {
			r.recovery.Observe(e.RecoverySeconds)
			r.lost.Add(float64(e.LostSteps))
		}
	case *record.Partial:
		r.partials.Inc()
	case *record.Checkpoint:
		r.saved(e)
	case *record.Exposure:
		r.atRisk.Set(float64(e.AtRisk()))
	case *record.Evaluation:
		r.evaluated(e)
	}
}

func (r *Run) evaluated(e *record.Evaluation) {
	r.testLoss.Set(float64(e.Loss))
	r.testAccuracy.Set(float64(e.Accuracy))
}

// newest shows the newest step.
func (r *Run) newest(e *record.Step) {
	r.on = e.Line
	r.step.Set(float64(e.Step))
	r.line.Set(float64(e.Line))
	r.loss.Set(float64(e.Loss))
	r.norm.Set(float64(e.Norm))
	r.quota.Set(float64(e.Quota))
	r.workers.Set(float64(e.Workers))
	r.staleness.Set(float64(e.Staleness))
}

func (r *Run) released(e *record.Step) {
	r.newest(e)
	r.steps.Inc()
	r.examples.Add(float64(e.Examples))
	r.clipped.Add(float64(e.Clipped))
	r.pushed.Add(float64(e.PushedBytes))
	r.pulled.Add(float64(e.PulledBytes))
	for fate, n := range map[string]uint32{"counted": uint32(len(e.Counted)), "late": e.Late, "kept": e.Kept, "dropped": e.Dropped} {
		r.gradients.WithLabelValues(fate).Add(float64(n))
	}
	r.wait.Observe(e.WaitSeconds)
	r.apply.Observe(e.ApplySeconds)
}

func (r *Run) saved(e *record.Checkpoint) {
	kind := word(e.Running, "running", "full")
	r.saves.WithLabelValues(kind, word(e.Error == "", "saved", "failed")).Inc()
	if e.Error != "" {
		return
	}
	r.savedBytes.WithLabelValues(kind).Add(float64(e.Bytes))
	r.saveSeconds.WithLabelValues(kind).Observe(e.TookSeconds)
	if !e.Running {
		r.savedAs(e)
	}
}

// savedAs shows the newest full checkpoint.
func (r *Run) savedAs(e *record.Checkpoint) {
	r.savedStep.Set(float64(e.Step))
	r.savedTime.Set(r.start + e.Seconds - e.TookSeconds)
}

func word(yes bool, one, other string) string {
	if yes {
		return one
	}
	return other
}
