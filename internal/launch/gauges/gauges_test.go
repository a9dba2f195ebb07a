package gauges

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// page returns what Prometheus would read.
func page(t *testing.T, r *Run) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// values returns the samples of our metrics by name and labels, without those of buckets.
func values(t *testing.T, r *Run) map[string]string {
	t.Helper()
	list := make(map[string]string)
	for line := range strings.Lines(page(t, r)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "kintsugi_") && !strings.Contains(name, "_bucket{") {
			list[name] = value
		}
	}
	return list
}

func TestMetricsAreNamedAsPrometheusAsks(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(page(t, New("v1", "abc", 10)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The run has six steps: a checkpoint of step 2, a server that dies after step 4, and two steps
// that are taken back and made again.
func TestARunAsMetrics(t *testing.T) {
	r := New("v1", "abc", 6)
	dir := t.TempDir()
	start := time.Unix(1_700_000_000, 0)
	rec, err := record.Create(dir, nil, record.Header{Start: start, Servers: 2, Workers: 2, Steps: 6})
	if err != nil {
		t.Fatal(err)
	}
	rec.Tell(r.Add)
	at := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
	step := func(second float64, line, n uint64, late uint32) {
		rec.Record(at(second), &record.Step{Line: line, Step: n, Loss: record.Number(1 / float64(n)), Counted: []uint32{0, 1}, Workers: 2, Quota: 2, Late: late,
			Examples: 64, WaitSeconds: 0.25, ApplySeconds: 0.125, PushedBytes: 1000, PulledBytes: 500})
	}
	rec.Record(at(0), &record.View{Number: 1, Line: 1, Heads: []uint32{0, 1}})
	for n := range uint64(4) {
		step(float64(n+1), 1, n+1, 0)
	}
	rec.Record(at(4.5), &record.Checkpoint{Line: 1, Step: 2, Bytes: 4096, TookSeconds: 2})
	rec.Record(at(4.6), &record.Checkpoint{Line: 1, Step: 3, Error: "no space left on device"})
	rec.Record(at(4.7), &record.Checkpoint{Line: 1, Step: 3, Running: true, Bytes: 512, TookSeconds: 0.25})
	rec.Record(at(4.8), &record.Exposure{Servers: []record.ServerCost{{Steps: 2}, {Steps: 1.5}}})
	rec.Record(at(5), &record.Failure{Part: "server/1", SeenSeconds: 5})
	rec.Record(at(5.5), &record.View{Number: 2, Line: 2, Heads: []uint32{0, 1}, Restore: "manifest/2", RestoredStep: 2})
	if got := values(t, r)["kintsugi_step"]; got != "2" {
		t.Errorf("after the restore the newest step is %s; want 2", got)
	}
	for n := uint64(3); n <= 6; n++ {
		step(float64(n+3), 2, n, 1)
	}
	rec.Record(at(10), &record.Evaluation{Step: 6, Loss: 0.5, Accuracy: 0.75})
	r.Members("server", 2)
	r.Over()
	if _, err := rec.Finish(at(11), ""); err != nil {
		t.Fatal(err)
	}

	got := values(t, r)
	for name, want := range map[string]any{
		"kintsugi_step":                                             6,
		"kintsugi_steps_wanted":                                     6,
		"kintsugi_steps_total":                                      8,
		"kintsugi_lost_steps_total":                                 2,
		"kintsugi_line":                                             2,
		"kintsugi_view":                                             2,
		"kintsugi_over":                                             1,
		"kintsugi_examples_total":                                   8 * 64,
		"kintsugi_pushed_bytes_total":                               8000,
		"kintsugi_pulled_bytes_total":                               4000,
		`kintsugi_gradients_total{fate="counted"}`:                  16,
		`kintsugi_gradients_total{fate="late"}`:                     4,
		`kintsugi_gradients_total{fate="dropped"}`:                  0,
		`kintsugi_failures_total{announced="false",role="server"}`:  1,
		`kintsugi_failures_total{announced="false",role="worker"}`:  0,
		"kintsugi_recovery_seconds_count":                           1,
		"kintsugi_recovery_seconds_sum":                             1, // from 5 to the release of step 3
		"kintsugi_step_wait_seconds_count":                          8,
		"kintsugi_step_wait_seconds_sum":                            2,
		`kintsugi_checkpoints_total{kind="full",result="saved"}`:    1,
		`kintsugi_checkpoints_total{kind="full",result="failed"}`:   1,
		`kintsugi_checkpoints_total{kind="running",result="saved"}`: 1,
		`kintsugi_checkpoint_bytes_total{kind="full"}`:              4096,
		`kintsugi_checkpoint_bytes_total{kind="running"}`:           512,
		"kintsugi_checkpoint_step":                                  2,
		"kintsugi_checkpoint_timestamp_seconds":                     "1.7000000025e+09",
		"kintsugi_at_risk_steps":                                    2,
		"kintsugi_test_accuracy_ratio":                              0.75,
		`kintsugi_members{role="server"}`:                           2,
		"kintsugi_workers_admitted":                                 2,
	} {
		if got[name] != fmt.Sprint(want) {
			t.Errorf("%s is %s; want %v", name, got[name], want)
		}
	}
	r.Add(&record.Exposure{Servers: []record.ServerCost{{Steps: 2}, {Steps: record.Unknown()}}})
	if got := values(t, r)["kintsugi_at_risk_steps"]; got != "NaN" {
		t.Errorf("with one server of which it is not known what its loss costs, %s steps are at risk; want NaN", got)
	}
}

// A program that goes on with a record shows the state of the run before anything happens, since an
// old checkpoint is a reason to wake people. What it counts begins at 0, and a view of the present
// line takes no step back.
func TestARunThatIsGoneOnWith(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	run := record.NewRun([]record.Event{
		&record.View{At: record.At{Seconds: 1}, Number: 3, Line: 2, RestoredStep: 10},
		&record.Step{At: record.At{Seconds: 20}, Line: 2, Step: 40, Workers: 2},
		&record.Checkpoint{At: record.At{Seconds: 25}, Line: 2, Step: 30, TookSeconds: 3},
		&record.Checkpoint{At: record.At{Seconds: 26}, Line: 2, Step: 40, Error: "no space left on device"},
		&record.Evaluation{Step: 40, Accuracy: 0.5},
	}, nil)
	r := New("v1", "abc", 60)
	r.GoOn(run, start)
	r.Add(&record.View{Number: 4, Line: 2, RestoredStep: 10})
	got := values(t, r)
	for name, want := range map[string]any{
		"kintsugi_step": 40, "kintsugi_line": 2, "kintsugi_view": 4, "kintsugi_steps_total": 0, "kintsugi_workers_admitted": 2, "kintsugi_test_accuracy_ratio": 0.5,
		"kintsugi_checkpoint_step": 30, "kintsugi_checkpoint_timestamp_seconds": "1.700000022e+09", `kintsugi_checkpoints_total{kind="full",result="saved"}`: 0,
	} {
		if got[name] != fmt.Sprint(want) {
			t.Errorf("%s is %s; want %v", name, got[name], want)
		}
	}
	if r.Add(&record.View{Number: 5, Line: 3, RestoredStep: 30}); values(t, r)["kintsugi_step"] != "30" {
		t.Error("the next line takes steps back")
	}
}

// docs/monitoring.md names each metric, and no other.
func TestEveryMetricIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := make(map[string]bool)
	for _, name := range regexp.MustCompile(`kintsugi_[a-z_]+`).FindAllString(string(text), -1) {
		explained[name] = true
	}
	r := New("v1", "abc", 6)
	r.Members("server", 1)
	r.Add(&record.Checkpoint{})
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := f.GetName()
		if ours := strings.HasPrefix(name, "kintsugi_"); ours && !explained[name] {
			t.Errorf("docs/monitoring.md does not name %s", name)
		}
		delete(explained, name)
	}
	for name := range explained {
		t.Errorf("docs/monitoring.md names %s, which is not there", name)
	}
}
