//go:build linux

package gpu_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// output runs a command, and returns its exit status and its output. The test is skipped if one of
// the programs is missing.
func output(t *testing.T, programs []string, c *exec.Cmd) (int, string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("it runs scripts with %s, which is not here: install it: %v", p, err)
		}
	}
	b, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(b)
}

// write writes files to a folder, and makes them executable.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// cells returns the rows of the tables in Markdown.
func cells(text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		if row, ok := strings.CutPrefix(line, "| "); ok && !strings.HasPrefix(row, "---") {
			rows = append(rows, strings.Split(row, " |"))
		}
	}
	return rows
}

// Each row of docs/gpu.md is in the table. If nothing was measured, figures are marked as missing,
// and if everything was, none is.
func TestTheTableHasEachRowThatWaits(t *testing.T) {
	docs, err := os.ReadFile("../../docs/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	_, waiting, _ := strings.Cut(string(docs), "## What waits")
	_, empty := output(t, []string{"python3"}, exec.Command("python3", "table.py", t.TempDir()))
	for _, row := range cells(waiting)[1:] {
		if !strings.Contains(empty, "| "+row[0]+" |") {
			t.Errorf("the table has no row %q", row[0])
		}
	}
	if !strings.Contains(empty, "\n0 goals are reached, 0 are not, ") {
		t.Errorf("of nothing the table says\n%s", empty)
	}

	var ours, torch, cub strings.Builder
	for _, row := range cells(empty)[1:] {
		name := strings.TrimSpace(row[1])
		ours.WriteString("Benchmark" + name + "-16 \t 1\t 1000 GB/s\t 0.99 of-copy\t 1010 copy-GB/s\t 1.5 ms\t 900 TFLOP/s\n")
		for _, variant := range []string{"", " compiled", " eager", " pinned", " graph"} {
			fmt.Fprintf(&torch, "%-44s %9.3f ms %9.1f GB/s\n", name+variant, 7.6, 12.0)
		}
		fmt.Fprintf(&cub, "%s %30.3f ms\n", name, 2.5)
	}
	torch.WriteString("trained program: \"final_loss\":2.5,\n")
	const clean = "========= SUMMARY: 0 errors\nPASS\n"
	full := t.TempDir()
	write(t, full, map[string]string{
		"bench.txt": ours.String(), "torch.txt": torch.String(), "cub.txt": cub.String(),
		"tests.txt": "--- PASS: TestA (0.01s)\nPASS\n--- SKIP: TestB (0.00s)\nPASS\n",
		"train.txt": `trained cnn-calm: "final_loss":0.25,"wall_seconds":3,` + "\n" + `trained cnn-killed: "final_loss":0.25,` + "\n" +
			`trained charlm-calm: "final_loss":2.5,` + "\n" + `trained charlm-killed: "final_loss":2.5,` + "\n",
		"sanitize.txt": "=== compute-sanitizer memcheck\n" + clean + "=== compute-sanitizer racecheck\n" +
			strings.Replace(clean, "0 errors", "0 hazards displayed (0 errors, 0 warnings)", 1) + "=== compute-sanitizer synccheck\n" + clean,
	})
	_, all := output(t, nil, exec.Command("python3", "table.py", t.TempDir(), full))
	if !regexp.MustCompile(`\n[1-9]\d+ goals are reached, 0 are not, 0 figures are missing\.\n$`).MatchString(all) {
		t.Errorf("of everything the table says\n%s", all)
	}
}

// stubs take the place of the programs that bench/gpu/build makes, and of python3, which finds no
// PyTorch.
var stubs = map[string]string{
	"cuda.test":   "#!/bin/sh\necho BenchmarkFinite-2 1 0.95 of-copy 1 GB/s 2 copy-GB/s; echo PASS\n",
	"engine.test": "#!/bin/sh\necho PASS\n",
	"kintsugi":    "#!/bin/sh\n[ \"$1\" != train ] || { while [ $1 != --out ]; do shift; done; mkdir -p $2; echo '  \"final_loss\": 1,' >$2/summary.json; }\n",
	"cub":         "#!/bin/sh\necho Select/alone/0.1 1.5 ms\n",
	"pytorch.py":  "",
}

// carried returns a folder with the scripts and the stubs, of which others replace some.
func carried(t *testing.T, others map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"run", "table.py"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, folder, map[string]string{name: string(b)})
	}
	write(t, folder, stubs)
	write(t, folder, others)
	return folder
}

// run runs parts with a limit in seconds. It returns the status, the content of run.txt, and that
// of every other file.
func run(t *testing.T, folder, limit string, parts ...string) (status int, said string, files map[string]string) {
	t.Helper()
	c := exec.Command(filepath.Join(folder, "run"), append([]string{"out"}, parts...)...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "LIMIT="+limit, "QUICK=")
	status, text := output(t, []string{"bash", "timeout", "python3"}, c)
	all, err := os.ReadDir(filepath.Join(c.Dir, "out"))
	if err != nil {
		t.Fatalf("%v; run printed\n%s", err, text)
	}
	files = make(map[string]string)
	for _, f := range all {
		b, err := os.ReadFile(filepath.Join(c.Dir, "out", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name()] = string(b)
	}
	return status, files["run.txt"], files
}

func TestAPartThatFailsStopsNoOther(t *testing.T) {
	folder := carried(t, map[string]string{"engine.test": "#!/bin/sh\necho --- FAIL: TestX; exit 1\n"})
	status, said, files := run(t, folder, "60", "tests", "train", "cub", "table")
	if status != 1 || !regexp.MustCompile(`tests: FAILED.*\ntrain: passed.*\ncub: passed.*\ntable: passed`).MatchString(said) {
		t.Errorf("status %d, and run.txt says\n%s", status, said)
	}
	if want := []string{"cub.txt", "run.txt", "table.md", "tests.txt", "train.txt"}; !slices.Equal(slices.Sorted(maps.Keys(files)), want) {
		t.Errorf("files %v, want %v", slices.Sorted(maps.Keys(files)), want)
	}
}

// If something hangs, as a GPU may, it is ended, and what it had printed is kept.
func TestARunEndsAtItsLimit(t *testing.T) {
	folder := carried(t, map[string]string{"engine.test": "#!/bin/sh\nexec sleep 600\n"})
	status, said, files := run(t, folder, "2", "bench", "cub", "table")
	if status != 1 || !regexp.MustCompile(`bench: FAILED.*\ncub: FAILED.*\ntable: passed`).MatchString(said) {
		t.Errorf("status %d, and run.txt says\n%s", status, said)
	}
	for file, want := range map[string]string{"bench.txt": "run: (it was ended after|no time is left)", "cub.txt": "run: no time is left"} {
		if !regexp.MustCompile(want).MatchString(files[file]) {
			t.Errorf("%s says\n%s\nwant %q", file, files[file], want)
		}
	}
}
