package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// besides returns the page that compares runs.
func besides(t *testing.T, runs ...*record.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Compare(&b, runs); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// demoAs is the run of a seed in a folder, with some of its settings replaced.
func demoAs(dir string, seed uint64, replace ...string) *record.Run {
	events, config := demo(400, seed)
	run := record.NewRun(events, []byte(strings.NewReplacer(replace...).Replace(string(config))))
	run.Dir = dir
	return run
}

func TestRunsAreComparedByWhatDiffers(t *testing.T) {
	page := besides(t, demoAs("runs/small", 1, "codec: int8", "codec: topk:0.01"), demoAs("runs/old", 2, "faults:\n  - kill server/0 at step 150 for 3s\n  - kill worker/4 at 18s for 4s", "faults: []"), demoAs("else/old", 3))
	for _, want := range []string{
		"3 runs", "lenet on digits", "61,706 parameters", ">small<", ">runs/old<", ">else/old<",
		"codec topk:0.01, faults kill server/0 at step 150 for 3s, kill worker/4 at 18s for 4s<", ">codec int8<", `<dt>optimizer.rule</dt><dd>momentum</dd>`,
		`class="curve r0"`, `class="curve r1"`, `class="curve r2"`, "accuracy", "&#34;name&#34;:&#34;runs/old&#34;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	for _, bad := range []string{"http:", "https:", "<dt>codec</dt>", "NaN", "[]<"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// Runs that have nothing in common, or no steps, or no settings can be compared too, and labels
// never cover one another.
func TestAnyRunsCanBeCompared(t *testing.T) {
	empty, strange := record.NewRun(nil, nil), record.NewRun([]record.Event{&record.Step{Line: 1, Step: 1, Loss: record.Unknown()}, &record.Evaluation{Loss: 1, Accuracy: record.Unknown()}}, []byte("{a: [b"))
	empty.Dir, strange.Dir = `<b>`, "/"
	for _, runs := range [][]*record.Run{{empty}, {empty, empty}, {strange, empty, demoAs("x", 1)}} {
		if page := besides(t, runs...); strings.Contains(page, "<b>") || strings.Contains(page, "NaN") {
			t.Errorf("a page of %d runs holds what it should not", len(runs))
		}
	}
	var many []*record.Run
	for i := range MostCompared {
		many = append(many, demoAs(fmt.Sprint("runs/", i), uint64(i)))
	}
	page := besides(t, many...)
	for i := range many {
		if n := strings.Count(page, fmt.Sprintf(`class="curve r%d"`, i)); n != 4 {
			t.Errorf("run %d has %d curves, want loss and accuracy over steps and over time", i, n)
		}
		if !strings.Contains(page, fmt.Sprintf("path.r%d", i)) || !strings.Contains(page, fmt.Sprintf(".key.r%d", i)) {
			t.Errorf("run %d has no colour", i)
		}
	}
	for _, c := range []struct{ dirs, want []string }{
		{[]string{"a/x", "b/x", "c"}, []string{"a/x", "b/x", "c"}},
		{[]string{"/p/a/x", "/q/a/x/", "/q/b"}, []string{"p/a/x", "q/a/x", "b"}},
		{[]string{"x", "y/x"}, []string{"x", "y/x"}},
		{[]string{"same", "same"}, []string{"same", "same"}},
	} {
		var runs []*record.Run
		for _, dir := range c.dirs {
			runs = append(runs, &record.Run{Dir: dir})
		}
		if got := namesOf(runs); !slices.Equal(got, c.want) {
			t.Errorf("%q are called %q, want %q", c.dirs, got, c.want)
		}
	}
}
