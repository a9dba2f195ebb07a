package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
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

// Each flag of the learning rate's schedule and of weight decay reaches the schedule. What is not
// given has its default.
func TestTheScheduleIsWhatTheFlagsSay(t *testing.T) {
	for _, c := range []struct {
		flags string
		want  conductor.Schedule
	}{
		{"--model qp --steps 30 --learning-rate 0.5", conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.5, Decay: conductor.Decay{Form: conductor.Cosine}, Steps: 30}},
		{"--model qp --steps 30 --optimizer adamw --learning-rate 0.5 --momentum 0.75 --warmup 7 --decay linear:0.125,last=0.5 --betas 0,0.75 --epsilon 0.5 --weight-decay 0.25 --weight-decay-for matrices",
			conductor.Schedule{Rule: kintsugi.RuleAdamW, LearningRate: 0.5, Momentum: 0.75, Beta2: 0.75, Epsilon: 0.5, Warmup: 7, Decay: conductor.Decay{Form: conductor.Linear, Part: 0.125, Last: 0.5}, WeightDecay: 0.25, DecayMatrices: true, Steps: 30}},
	} {
		var s settings
		f := newFlagSet("train")
		s.register(f)
		if err := f.Parse(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		if _, err := describe(&s); err != nil {
			t.Fatal(err)
		}
		if got, err := s.schedule(); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", c.flags, got, err, c.want)
		}
	}
}

// A pair may be a list in a file of settings, as it is in other programs.
func TestAPairMayBeAListInAFile(t *testing.T) {
	s, f := settings{}, newFlagSet("train")
	s.register(f)
	if err := loadText(f, "run.yaml", []byte("betas: [0.9, 0.95]\nrate: ['a=2', 'b=3']\nprogram: []\n")); err != nil {
		t.Fatal(err)
	}
	if s.Betas != "0.9,0.95" || !slices.Equal(s.Rates, []string{"a=2", "b=3"}) || len(s.Program) > 0 {
		t.Errorf("betas %q, rates %q, program %q", s.Betas, s.Rates, s.Program)
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

// The file of a run is for all of its processes. A setting of train that a role does not have is not
// taken for a mistake in it.
func TestEveryFlagOfTrainMayBeInAFile(t *testing.T) {
	train := &training{}
	train.register(newFlagSet("train"))
	train.flags.VisitAll(func(f *pflag.Flag) {
		if !ofTrain(f.Name) {
			t.Errorf("--%s is a flag of train, and a role whose --config has it would refuse it", f.Name)
		}
	})
	for _, name := range append(slices.Clone(trainFlags), "model") {
		if train.flags.Lookup(name) == nil {
			t.Errorf("--%s is no flag of train", name)
		}
	}
}
