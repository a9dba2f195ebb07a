package record

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCrashesAreFoundInLogs(t *testing.T) {
	dir := t.TempDir()
	if found, err := Crashes(dir); found != nil || err != nil {
		t.Errorf("without logs: %q, %v", found, err)
	}
	if err := os.Mkdir(LogsDir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("panic: ", 2000)
	for name, text := range map[string]string{
		"server-0.log":    "=== server/0 incarnation 1\n{\"msg\":\"panic: not at the beginning\"}\n" + long[3:] + "\nfine\n",
		"worker-0.log":    "{}\npanic: index out of range [3]\n\ngoroutine 1 [running]:\n=== worker/0 incarnation 2\nfatal error: concurrent map writes",
		"worker-1.log":    "==================\nWARNING: DATA RACE\n" + long + "\nruntime: out of memory: cannot allocate\n",
		"coordinator.txt": "panic: of another file\n",
	} {
		if err := os.WriteFile(filepath.Join(LogsDir(dir), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Crashes(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		found[i] = f[:min(len(f), 40)]
	}
	want := []string{"worker-0.log: panic: index out of range [", "worker-0.log: fatal error: concurrent ma", "worker-1.log: WARNING: DATA RACE", "worker-1.log: panic: panic: panic: panic", "worker-1.log: runtime: out of memory: ca"}
	for i, w := range want {
		want[i] = w[:min(len(w), 40)]
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
