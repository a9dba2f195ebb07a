package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestFlagsWinOverTheFileAndTheFileOverTheEnvironment(t *testing.T) {
	dir := newDir(t)
	file := filepath.Join(t.TempDir(), "settings.yaml")
	writeFile(t, file, []byte("model: qp\nblas: gonum\nseed: 6\nbatch: 3\nfault:\n  - slow worker/0 x2 from step 9\n"))
	must(t, "KINTSUGI_STEPS=4", "KINTSUGI_SEED=5", "KINTSUGI_BATCH=2", "KINTSUGI_CHECKPOINT_EVERY=3",
		"train", "--config", file, "--batch", "4", "--out", dir)
	config := "\n" + string(readRun(t, dir).Config)
	for _, want := range []string{
		"steps: 4",            // from the environment, which overrides the file's 1200
		"checkpoint-every: 3", // from the environment
		"seed: 6",             // from the file, which overrides the environment
		"batch: 4",            // from a flag, which overrides both
		"servers: 2",          // default
		"fault:\n    - slow worker/0 x2 from step 9",
	} {
		if !strings.Contains(config, "\n"+want+"\n") {
			t.Errorf("the settings of the run are%s\nwant %q", config, want)
		}
	}
	if s := readRun(t, dir).Summary; s.Steps != 4 {
		t.Errorf("%d steps; want 4", s.Steps)
	}
}

// If an etcd or a memory ignored the environment, it would be open to everybody without a word.
func TestTheEnvironmentTurnsOnTLSWhereverAProcessIsStartedAlone(t *testing.T) {
	for _, command := range []string{"etcd --dir e --listen 127.0.0.1:0", "memory --listen 127.0.0.1:0", "status", "checkpoint list memory://127.0.0.1:1/run", "coordinator --model qp"} {
		r := kin(t, append([]string{"KINTSUGI_TLS=nowhere"}, strings.Fields(command)...)...)
		if r.status == exitDone || !strings.Contains(r.stderr, "nowhere") {
			t.Errorf("%s with KINTSUGI_TLS of a folder that is not there ended with status %d: %s", command, r.status, r.stderr)
		}
	}
}

func TestTheEnvironmentSaysWhereTheDataAre(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	data := writeImages(t, 60, 6)
	train := []string{"train", "--model", "mlr", "--data", "idx", "--blas", "gonum", "--steps", "3", "--workers", "1", "--servers", "1"}
	dir := newDir(t)
	must(t, append([]string{"KINTSUGI_DATA=" + data}, append(train, "--out", dir)...)...)
	if config := string(readRun(t, dir).Config); !strings.Contains(config, "\ndata-dir: "+data+"\n") || !strings.Contains(config, "\ninput: 1x6x6x3\n") {
		t.Errorf("the settings of the run are\n%s\nwant the folder %s and its shape", config, data)
	}
	dir = newDir(t)
	must(t, append([]string{"KINTSUGI_DATA=/nowhere"}, append(train, "--data-dir", data, "--out", dir)...)...) // the flag overrides the environment
	// The variable says where data are, not which: the default data set needs no folder.
	dir = newDir(t)
	must(t, "KINTSUGI_DATA="+data, "train", "--model", "mlr", "--blas", "gonum", "--steps", "3", "--workers", "1", "--servers", "1", "--out", dir)
	if config := string(readRun(t, dir).Config); !strings.Contains(config, "\ndata: digits\n") {
		t.Errorf("the settings of the run are\n%s\nwant the digits", config)
	}
	// A run that is repeated or resumed finds the folder in its settings.
	dir = newDir(t)
	must(t, append(train, "--data-dir", data, "--out", dir)...)
	must(t, "train", "--resume", dir, "--steps", "5")
	must(t, "KINTSUGI_DATA=/nowhere", "rerun", dir, "--out", newDir(t))
}
