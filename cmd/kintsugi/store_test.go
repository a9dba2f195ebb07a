package main

import (
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
)

func TestARunWhoseCheckpointsLieInAnObjectStore(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for protocol, place := range stores() {
		t.Run(protocol, func(t *testing.T) { checkRunInAStore(t, place(t)) })
	}
}

// stores returns what starts a store of each protocol, and names the places in it: those of tests,
// and those that others wrote where there are any.
func stores() map[string]func(testing.TB) func(prefix string) string {
	all := map[string]func(testing.TB) func(prefix string) string{
		"s3": func(t testing.TB) func(string) string { return objecttest.New(t).Place },
		"gs": func(t testing.TB) func(string) string { return objecttest.NewGoogle(t).Place },
		"az": func(t testing.TB) func(string) string { return objecttest.NewAzure(t).Place },
	}
	for name, start := range objecttest.Others() {
		all[name] = func(t testing.TB) func(string) string { return start(t, os.Getenv) }
	}
	return all
}

func checkRunInAStore(t *testing.T, placeOf func(prefix string) string) {
	dir, want := filepath.Join(t.TempDir(), "first"), newDir(t)
	store := placeOf("team")
	must(t, quadratic(120, "--decay", "constant", "--checkpoint-every", "20", "--fault", "kill server/0 at step 50", "--store", store, "--out", dir)...)
	if r := readRun(t, dir); len(r.Summary.Failures) != 1 {
		t.Errorf("failures: %+v", r.Summary.Failures)
	}
	must(t, "train", "--resume", dir, "--steps", "150")
	if out := must(t, "checkpoint", "verify", dir); !strings.HasSuffix(out, " 0 damaged places\n") {
		t.Errorf("verify says\n%s", out)
	}
	place := strings.Replace(store, "/team?", "/team/first?", 1)
	if a, b := must(t, "checkpoint", "list", dir), must(t, "checkpoint", "list", place); a != b || !strings.Contains(a, "\n150 ") {
		t.Errorf("list of the run says\n%sand of its place\n%s", a, b)
	}
	must(t, quadratic(150, "--decay", "constant", "--out", want)...)
	sameBits(t, dir, want)
	if _, err := os.Stat(filepath.Join(dir, record.Checkpoints)); err == nil {
		t.Error("there is a folder of checkpoints beside the store")
	}
	for path, text := range tree(t, dir) {
		if strings.Contains(text, objecttest.Secret) || strings.Contains(text, objecttest.Key) {
			t.Errorf("%s holds the keys of the store", path)
		}
	}
	// A new run begins with a run in the store, and saves its checkpoints there too.
	copied := filepath.Join(t.TempDir(), "second")
	must(t, "checkpoint", "restore", dir, "--out", copied, "--store", store)
	sameBits(t, copied, dir)
	if out := must(t, "checkpoint", "repair", copied); !strings.HasPrefix(out, "0 damaged places") {
		t.Errorf("repair of what is whole says\n%s", out)
	}
	must(t, "checkpoint", "show", place)
	must(t, "checkpoint", "export", place, "--out", filepath.Join(t.TempDir(), "x.npz"))
	// A second run of that name would go on from those checkpoints.
	other := filepath.Join(t.TempDir(), "first")
	if r := kin(t, quadratic(20, "--store", store, "--out", other)...); r.status != exitUsage || !strings.Contains(r.stderr, "another run") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
}

func TestAStoreThatIsFullForAWhileDoesNotStopTraining(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	server := objecttest.New(t)
	wrote := 0
	server.Fail(func(_ int, r *http.Request) objecttest.Fault {
		if r.Method == http.MethodPut {
			wrote++
		}
		if r.Method == http.MethodPut && wrote > 5 && wrote <= 7 { // the launcher and the coordinator write first, to try the store and to claim a line
			return objecttest.Fault{Status: http.StatusInsufficientStorage, Code: "XMinioStorageFull"}
		}
		return objecttest.Fault{}
	})
	dir := newDir(t)
	r := kin(t, quadratic(300, "--checkpoint-every", "10", "--store", server.Place("x"), "--out", dir)...)
	if r.status != exitDone || !strings.Contains(r.stderr, "is full") || !strings.Contains(r.stderr, "newest_checkpoint") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	run := readRun(t, dir)
	if run.Summary.Steps != 300 || run.Summary.FailedSaves == 0 || len(run.Summary.Failures) > 0 {
		t.Errorf("steps %d, failed saves %d, failures %v", run.Summary.Steps, run.Summary.FailedSaves, run.Summary.Failures)
	}
	if step, _ := lastParams(t, dir); step != 300 {
		t.Errorf("the newest checkpoint is of step %d", step)
	}
}

// A run is killed while its store fails, and goes on while it fails again. Steps are made all the
// while, the log reports what the store does, and in the end everything is saved.
func TestAKilledRunGoesOnWhileItsStoreIsInTrouble(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for kind, fault := range map[string]objecttest.Fault{"hangs": {Hang: true}, "503": {Status: http.StatusServiceUnavailable, Code: "SlowDown"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := objecttest.New(t)
			var trouble atomic.Int32 // number of wrong answers to writes that are left to give
			server.Fail(func(_ int, r *http.Request) objecttest.Fault {
				claims := strings.Contains(r.URL.Path, "/line/") // without its claim a run does not begin
				if r.Method == http.MethodPut && !claims && trouble.Add(-1) >= 0 {
					return fault
				}
				return objecttest.Fault{}
			})
			dir := newDir(t)
			p := start(t, quadratic(50_000, "--checkpoint-every", "20", "--store", server.Place("x")+"&patience=200ms", "--out", dir)...)
			p.reaches(dir, 50)
			trouble.Store(math.MaxInt32)
			eventually(t, "a save has failed", func() bool { return readRun(t, dir).Summary.FailedSaves > 0 })
			p.reaches(dir, readRun(t, dir).Summary.Steps+50)
			p.signal(syscall.SIGKILL)
			p.wait()
			eventually(t, "its processes have ended", func() bool { return len(leftOf(t, dir)) == 0 })
			newest, _ := lastParams(t, dir)
			trouble.Store(30)
			steps := uint64(newest) + 300
			r := kin(t, "train", "--resume", dir, "--steps", strconv.FormatUint(steps, 10))
			if r.status != exitDone || trouble.Load() >= 0 {
				t.Fatalf("exit status %d, %d answers are still to be wrong:\n%s", r.status, trouble.Load(), r.stderr)
			}
			for _, text := range []string{p.stderr.String(), r.stderr} {
				if !strings.Contains(text, "training goes on") || !strings.Contains(text, "the object store does not answer as it should") {
					t.Errorf("it does not say what the store does:\n%s", text)
				}
			}
			if step, _ := lastParams(t, dir); uint64(step) != steps {
				t.Errorf("the newest checkpoint is of step %d of %d", step, steps)
			}
		})
	}
}

func TestAStoreThatCannotBeUsedIsToldBeforeTheRun(t *testing.T) {
	for protocol, place := range stores() {
		t.Run(protocol, func(t *testing.T) { checkUnusable(t, place(t)("x")) })
	}
}

func checkUnusable(t *testing.T, place string) {
	protocol, _, _ := strings.Cut(place, "://")
	keys := map[string]string{"s3": "AWS_ACCESS_KEY_ID", "gs": "GOOGLE_APPLICATION_CREDENTIALS", "az": "AZURE_STORAGE_KEY"}[protocol]
	wrong := place
	if protocol == "gs" {
		wrong, _, _ = strings.Cut(place, "?") // over plain HTTP there are no keys; Google itself is not asked with those that cannot be read
	}
	for what, c := range map[string]struct{ env, store, says string }{
		"keys":     {keys, wrong, "check " + keys},
		"bucket":   {"", strings.Replace(place, "://"+objecttest.Bucket, "://nobody", 1), "bucket nobody"},
		"password": {"", protocol + "://me:hidden@" + objecttest.Bucket, "keys do not belong"},
	} {
		t.Run(what, func(t *testing.T) {
			if c.env != "" {
				t.Setenv(c.env, "wrong")
			}
			dir := newDir(t)
			r := kin(t, quadratic(20, "--store", c.store, "--out", dir)...)
			if r.status == exitDone || !strings.Contains(r.stderr, c.says) || strings.Contains(r.stderr, "hidden") {
				t.Errorf("exit status %d:\n%s", r.status, r.stderr)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the run folder was made")
			}
			r = kin(t, "coordinator", "--model", "qp", "--etcd", "127.0.0.1:1", "--etcd-wait", "1h", "--store", c.store) // nor does it wait for etcd
			if r.status == exitDone || !strings.Contains(r.stderr, c.says) {
				t.Errorf("a coordinator ends with status %d:\n%s", r.status, r.stderr)
			}
		})
	}
}
