package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/lint"
)

// A planted tree breaks a rule on purpose. Its files stand one after another, each below a line "--
// path --". Every line that must be found ends in "// want RULE: a part of the message". A line "--
// path want RULE: ... --" expects a finding about the file as a whole.
type planted struct {
	name string
	tree string
}

var layers = []planted{
	{"a shell imports its own decisions and the wire", `
-- server/server.go --
// Package server is planted.
package server
import (
	_ "kin/internal/transport"
	_ "kin/server/shard"
	_ "kin/server/agg"
	_ "kin"
)
`},
	{"a layer imports its equal", `
-- server/shard/shard.go --
// Package shard is planted.
package shard
import _ "kin/server/conductor" // want layers: move what both need to a lower layer
`},
	{"the vocabulary imports an implementation", `
-- kin.go --
// Package kin is planted.
package kin
import _ "kin/internal/vfs" // want layers: the root package (layer 0) imports internal/vfs (layer 0
`},
	{"a lower layer imports a higher one", `
-- kernels/nn/nn.go --
// Package nn is planted.
package nn
import _ "kin/worker/engine" // want layers: kernels/nn (layer 1) imports worker/engine (layer 2
`},
	{"nothing imports the program", `
-- bench/bench.go --
// Package bench is planted.
package bench
import _ "kin/cmd/kintsugi" // want layers: nothing imports it
`},
	{"a folder below an entry belongs to it", `
-- internal/launch/launch.go --
// Package launch is planted.
package launch
import _ "kin/internal/launch/report"
-- internal/launch/report/report.go --
// Package report is planted.
package report
import _ "kin/internal/sim" // want layers: internal/launch/report (layer 4) imports internal/sim (layer 4
`},
	{"a checkpoint may use the codecs of the wire", `
-- recovery/ckpt/ckpt.go --
// Package ckpt is planted.
package ckpt
import _ "kin/kernels/compress"
import _ "kin/kernels/blas" // want layers: Imports go down
`},
	{"a build tag hides nothing", `
-- kernels/gpu.go --
//go:build cuda && arm64

// Package kernels is planted.
package kernels
import _ "kin/cuda" // want layers: kernels (layer 0) imports cuda (layer 2
`},
	{"a package has a line in the table", `
-- server/cache/cache.go want layers: add it there with the reason --
// Package cache is planted.
package cache
`},
	{"a test may reach further than its package", `
-- kernels/kernels_test.go --
package kernels_test
import _ "kin/kernels/kernelstest"
`},
}

var roles = []planted{
	{"roles meet in messages", `
-- worker/worker.go --
// Package worker is planted.
package worker
import _ "kin/server" // want roles: they meet in the messages of the root package
`},
	{"not even in their lower parts", `
-- server/server.go --
// Package server is planted.
package server
import _ "kin/recovery/ckpt" // want roles: take it as a function value
-- recovery/roster/roster.go --
// Package roster is planted.
package roster
import _ "kin/worker/model" // want roles: recovery and worker never import one another
`},
	{"not even in tests", `
-- worker/worker_test.go --
package worker_test
import _ "kin/server/agg" // want roles: belongs in internal/sim, internal/live or internal/launch
`},
}

var cores = []planted{
	{"a core does not act", `
-- server/agg/agg.go --
// Package agg is planted.
package agg
import (
	_ "fmt"
	_ "net/netip" // want cores: return the messages to send
	_ "os" // want cores: the shell reads and writes files
	_ "sync/atomic" // want cores: one goroutine of the shell owns a core
	_ "context" // want cores: a core never waits
	_ "log/slog" // want cores: return the reason in words
	_ "kin/kernels" // want cores: decide about tickets, never about floats
	_ "kin/kernels/compress" // want cores: decide about tickets // want layers: Imports go down
	_ "google.golang.org/grpc/codes" // want cores: internal/transport carries them
)
`},
	{"a core imports nothing unsafe, twice over", `
-- recovery/scar/scar.go --
// Package scar is planted.
package scar
import _ "unsafe" // want cores: use plain values // want unsafe: outside kernels
`},
	{"a core does not look at the clock", `
-- recovery/ledger/ledger.go --
// Package ledger is planted.
package ledger
import "time"
func wait(d time.Duration, at time.Time) time.Duration {
	if time.Since(at) > d { // want cores: take the time as an argument
		return 0
	}
	f := time.Now // want cores: return when to be called again
	return f().Sub(at)
}
type fake struct{}
func (fake) Now() int { return 1 }
func hidden(time fake) int { return time.Now() }
`},
	{"a core does not throw dice of its own", `
-- server/dbw/dbw.go --
// Package dbw is planted.
package dbw
import "math/rand/v2"
func draw(r *rand.Rand) float64 {
	s := rand.New(rand.NewPCG(1, 2))
	return r.Float64() + s.Float64() + rand.Float64() // want cores: take a seeded *rand.Rand
}
`},
	{"a shell may do all of it, and so may a core's test", `
-- server/server.go --
// Package server is planted.
package server
import ("context"; "net"; "os"; "sync"; "time")
var _ = time.Now
var _ context.Context
var _ net.Conn
var _ = os.Open
var _ sync.Mutex
-- server/agg/agg_test.go --
package agg
import ("os"; "time")
var _ = os.ReadFile
var _ = time.Now
`},
}

var code = []planted{
	{"cgo and unsafe have three homes", `
-- kernels/simd.go --
// Package kernels is planted.
package kernels
import "C"
import _ "unsafe"
-- internal/transport/codec.go --
// Package transport is planted.
package transport
import "C" // want unsafe: put the C code behind a Go function in kernels or cuda
import _ "unsafe" // want unsafe: use encoding/binary
//go:linkname now runtime.now // want unsafe: use what that package exports
-- kernelsx/x.go want layers: no line in the table --
// Package kernelsx is planted.
package kernelsx
import _ "unsafe" // want unsafe: use encoding/binary
`},
	{"libraries leave output and exit to the program", `
-- worker/worker.go --
// Package worker is planted.
package worker
import (
	"context"
	"fmt"
	"log"
	"os"
)
func run() {
	fmt.Println("step") // want calls: write to an io.Writer
	fmt.Fprintln(os.Stderr, "step")
	println("step") // want calls: it was for debugging
	log.Fatal("step") // want calls: a library returns errors
	_ = os.Getenv("KINTSUGI_DATA") // want calls: the default of a flag
	_ = context.TODO() // want calls: take the context of the caller
	os.Exit(1) // want calls: return an error
}
-- cmd/kintsugi/main.go --
// Command kintsugi is planted.
package main
import ("fmt"; "os")
func main() { fmt.Println(os.Getenv("KINTSUGI_DATA")); os.Exit(0) }
-- cmd/kintsugi/internal/job/settings.go --
// Package job is planted.
package job
import "os"
func load() { _ = os.Getenv("KINTSUGI_DATA"); os.Exit(1) } // want calls: return an error
`},
	{"names say where they come from", `
-- worker/worker.go --
// Package worker is planted.
package worker
import . "strings" // want calls: import it by its name
`},
	{"tests wait for what happens", `
-- worker/real_test.go --
package worker
import "time"
func wait() { time.Sleep(time.Second) } // want calls: wait for the event itself
-- worker/bubble_test.go --
package worker
import ("testing/synctest"; "time")
var _ = synctest.Wait
func pass() { time.Sleep(time.Second) }
`},
	{"errors are phrases", `
-- worker/worker.go --
// Package worker is planted.
package worker
import ("errors"; "fmt")
var _ = []error{
	errors.New("stale view"),
	errors.New("OpenBLAS not found"),
	errors.New("CRC32C differs, read on..."),
	errors.New("Stale view"), // want errors: write "stale"
	fmt.Errorf("fetch shard %d.", 1), // want errors: end with its last word
	fmt.Errorf("failed to fetch"), // want errors: say what was being done
}
`},
	{"work is finished or its limits are stated", `
-- kernels/sum.go --
// Package kernels is planted.
package kernels
// TODO(me): faster // want words: "Limitation:"
const todo = "TODO in a text is a text"
-- kernels/sum.c --
/* FIXME */ // want words: "Limitation:"
-- kernels/gen.go --
// Code generated by hand. DO NOT EDIT.

package kernels
// TODO is the generator's affair
`},
	{"a package says what it is for, once", `
-- worker/worker.go --
// Package worker is planted.
package worker
-- worker/zero.go want docs: a second package comment --
// Package worker is planted again.
package worker
-- server/server.go want docs: say in doc.go what problem it solves --
package server
-- recovery/doc.go want docs: start it with "Package recovery " --
// This package is planted.
package recovery
-- cmd/kintsugi/main.go want docs: start it with "Command kintsugi " --
// Package main is planted.
package main
`},
	{"a test that is named exists", `
-- docs/a.md --
Shown by TestAWayThatIsThere, TestX
and *TestAWayThatIsGone*. // want tests: there is no TestAWayThatIsGone
-- kernels/doc.go --
// Package kernels is planted: TestAWayThatIsThere, TestAnotherThatIsGone. // want tests: TestAnotherThatIsGone
package kernels
-- kernels/a_test.go --
package kernels
import "testing"
func TestAWayThatIsThere(t *testing.T) {}
`},
	{"links between pages lead somewhere", `
-- README.md --
See [a](docs/a.md), [its part](docs/a.md#a-part-of-it), [here](#below), [there](https://example.org/x.md#not-followed), [code](go.mod#L3),
![gone](docs/gone.svg), // want links: the link leads to docs/gone.svg
[its other part](docs/a.md#a-part) and [above](#above). // want links: #a-part, and docs/a.md has no such heading // want links: #above, and README.md has
## Below
-- docs/a.md --
# A *part* of [it](https://example.org)!
## _a_ é-b
## Again
## Again
[one](#_a_-é-b), [two](#again-1), [three](#again-2) // want links: #again-2, and docs/a.md has
Back to [the start](../README.md) or [nowhere](../docs/b.md#part). // want links: leads to docs/b.md
`},
	{"others can install the module, and require it", `
-- go.mod --
module kin

go 1.26

require example.org/replaced v0.1.0

replace example.org/replaced => ./here // want module: require another version
exclude example.org/excluded v0.2.0 // want module: refuses a module with exclude
`},
	{"a file is named by its noun", `
-- worker/utils.go want names: move each part beside what it serves --
// Package worker is planted.
package worker
`},
}

func TestEachRuleIsSeenToFire(t *testing.T) {
	for _, group := range [][]planted{layers, roles, cores, code} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) {
				files, want := p.parse(t)
				compare(t, check(t, files), want)
			})
		}
	}
}

func TestLengthIsLimitedAndTablesAreNot(t *testing.T) {
	lines := func(n int, s string) string { return strings.Repeat(s+"\n", n) }
	body := func(n int) string { return "func f(x int) {\n" + lines(n, "\tx++") + "}\n" }
	table := "func g() []int {\n\treturn []int{\n" + lines(300, "\t\t1,") + "\t}\n}\n"
	steps := "func h() []func() {\n\treturn []func(){\n\t\tfunc() {\n" + lines(100, "\t\t\tprintln()") + "\t\t},\n\t}\n}\n"
	const doc = "// Package worker is planted.\npackage worker\n\n"
	files := map[string]string{
		"worker/doc.go":       doc,
		"worker/fits.go":      "package worker\n" + body(78) + table,
		"worker/long.go":      "package worker\n" + body(79),
		"worker/code.go":      "package worker\nimport \"testing\"\nvar _ testing.T\n" + strings.ReplaceAll(steps, "println()", "_ = 1"),
		"worker/test_test.go": "package worker\n" + body(118),
		"worker/long_test.go": "package worker\n" + body(119),
		"worker/file.go":      "package worker\n" + lines(800, "// Padding."),
		"worker/whole.go":     "package worker\n" + lines(799, "// Padding."),
		"worker/made.go":      "// Code generated by hand. DO NOT EDIT.\n\npackage worker\n" + lines(2000, "// Padding.") + body(200),
		"cuda/kernel/big.cu":  lines(801, "// Padding."),
		"worker/wide.go": "package worker\n// " + strings.Repeat("é", 117) + "\n// " + strings.Repeat("é", 118) +
			"\nfunc f() {\n\t// " + strings.Repeat("x", 114) + "\n\tg(`\n// " + strings.Repeat("y", 200) + "`)\n}\n",
	}
	compare(t, check(t, files), []string{
		"worker/long.go:2: size: function f has 81 lines",
		"worker/code.go:4: size: function h has 106 lines",
		"worker/long_test.go:2: size: function f has 121 lines",
		"worker/file.go: size: the file has 801 lines, the limit is 800",
		"cuda/kernel/big.cu: size: the file has 801 lines",
		"worker/wide.go:3: size: the comment is 121 columns wide, the limit is 120: wrap it",
		"worker/wide.go:5: size: the comment is 121 columns wide",
	})
}

func TestWhatTheGoCommandLeavesOutIsLeftOut(t *testing.T) {
	const bad = "package bad\nimport _ \"unsafe\"\n"
	compare(t, check(t, map[string]string{
		"worker/testdata/bad.go": bad,
		"vendor/x/bad.go":        bad,
		".hidden/bad.go":         bad,
		"_gen/bad.go":            bad,
		"tools/go.mod":           "module kin/tools\n",
		"tools/bad.go":           bad,
		"runs/now/bad.go":        bad,
	}), nil)
}

func TestAFileThatDoesNotParseIsAnError(t *testing.T) {
	root := plant(t, map[string]string{"worker/worker.go": "package worker\nfunc {\n"})
	_, err := lint.Check(root)
	if err == nil || !strings.Contains(err.Error(), "worker/worker.go:2") {
		t.Errorf("got error %v, want one that names worker/worker.go:2", err)
	}
}

// parse returns the files of a planted tree, and the findings that it expects, as "path:line: rule:
// part".
func (p planted) parse(t *testing.T) (files map[string]string, want []string) {
	t.Helper()
	files = map[string]string{}
	path, line := "", 0
	for text := range strings.Lines(strings.TrimPrefix(p.tree, "\n")) {
		text = strings.TrimSuffix(text, "\n")
		if head, ok := strings.CutPrefix(text, "-- "); ok {
			var expected string
			path, expected, _ = strings.Cut(strings.TrimSuffix(head, " --"), " want ")
			if expected != "" {
				want = append(want, path+": "+expected)
			}
			files[path], line = "", 0
			continue
		}
		line++
		source, rest, found := strings.Cut(text, " // want ")
		for found {
			var expected string
			expected, rest, found = strings.Cut(rest, " // want ")
			want = append(want, fmt.Sprintf("%s:%d: %s", path, line, expected))
		}
		files[path] += source + "\n"
	}
	return files, want
}

// compare fails unless each finding is expected and each expected one is found. An expected finding
// is the place and rule of a finding, a colon, and a part of its message.
func compare(t *testing.T, got []lint.Finding, want []string) {
	t.Helper()
	left := append([]lint.Finding(nil), got...)
next:
	for _, w := range want {
		place, rest, _ := strings.Cut(w, ": ")
		rule, part, _ := strings.Cut(rest, ": ")
		for i, f := range left {
			if strings.HasPrefix(f.String(), place+": "+rule+": ") && strings.Contains(f.Message, part) {
				left = append(left[:i], left[i+1:]...)
				continue next
			}
		}
		t.Errorf("not found: %s", w)
	}
	for _, f := range left {
		t.Errorf("not wanted: %s", f)
	}
}

func check(t *testing.T, files map[string]string) []lint.Finding {
	t.Helper()
	findings, err := lint.Check(plant(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// plant writes the files of module kin into a new folder.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module kin\n\ngo 1.26\n")
	for name, text := range files {
		write(name, text)
	}
	return root
}
