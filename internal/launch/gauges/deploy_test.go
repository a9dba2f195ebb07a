package gauges

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The dashboard and the rules in deploy/ use only metrics and labels that are served, and the
// dashboard uses all metrics. The rules are those of the documentation.
func TestDashboardAndRulesAskForWhatIsServed(t *testing.T) {
	served := servedMetrics(t)
	dashboard := panelsOf(t, "../../../deploy/grafana/dashboard.json")
	rules := rulesOf(t, "../../../deploy/prometheus/rules.yaml")
	asked := make(map[string]bool)
	for _, expr := range slices.Concat(dashboard, rules) {
		if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
			t.Errorf("%s: its brackets do not match", expr)
		}
		for _, m := range regexp.MustCompile(`(kintsugi_\w+)(\{[^}]*\})?`).FindAllStringSubmatch(expr, -1) {
			name := family(m[1])
			labels, ok := served[name]
			if !ok {
				t.Errorf("%s: there is no metric %s", expr, name)
			}
			asked[name] = true
			for _, l := range regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
				if l[1] == "instance" { // Prometheus adds this label
					continue
				}
				if !slices.Contains(labels, l[1]+"="+l[3]) {
					t.Errorf("%s: %s has no label %s=%q, but %q", expr, name, l[1], l[3], labels)
				}
			}
		}
	}
	for name := range served {
		if !asked[name] && name != "kintsugi_build_info" {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	text, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, expr := range rules {
		if !strings.Contains(string(text), "`"+expr+"`") {
			t.Errorf("docs/monitoring.md does not have the rule %s", expr)
		}
	}
}

// family returns the metric to which a sample belongs.
func family(sample string) string {
	return regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(sample, "")
}

// servedMetrics returns the labels of each metric, as name=value.
func servedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	r := New("1.0", "abc", 10)
	r.Members("server", 2)
	r.Members("worker", 4)
	r.saveSeconds.WithLabelValues("full")
	r.savedBytes.WithLabelValues("full")
	text, served := page(t, r), make(map[string][]string)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (kintsugi_\w+) `).FindAllStringSubmatch(text, -1) {
		served[m[1]] = nil
	}
	for _, m := range regexp.MustCompile(`(?m)^(kintsugi_\w+)\{([^}]*)\}`).FindAllStringSubmatch(text, -1) {
		for _, l := range strings.Split(m[2], ",") {
			served[family(m[1])] = append(served[family(m[1])], strings.ReplaceAll(l, `"`, ""))
		}
	}
	if len(served) < 20 {
		t.Fatalf("only %d metrics are served: %q", len(served), slices.Sorted(maps.Keys(served)))
	}
	return served
}

func panelsOf(t *testing.T, path string) (exprs []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	ids := make(map[int]bool)
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 {
			t.Errorf("panel %d, %q, at %+v: its number is taken, it does not fit, or it shows nothing", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	return exprs
}

func rulesOf(t *testing.T, path string) (exprs []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			exprs = append(exprs, r.Expr)
		}
	}
	return exprs
}
