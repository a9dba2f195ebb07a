package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// A run whose processes are started one by one, as on several hosts, is followed by a monitor that
// is killed and started again. Each step is in its record once. A server that is killed meanwhile
// is in its summary, with the cost, and a worker with notice is in it as a departure.
func TestAMonitorFollowsARunThatOthersStarted(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	out, endpoint, metrics := filepath.Join(dir, "watched"), freeAddress(t), freeAddress(t)
	file := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(file, []byte("model: qp:dimension=400,condition=30,noise=0.1\nblas: gonum\nworkers: 2\nservers: 2\nreplicas: 2\nsteps: 250\ngradient-time: 10ms\nfault: []\nstore: \"\"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint}, more...)...)
	}
	store := filepath.Join(dir, "store")
	role("coordinator", "--store", store)
	role("server", "--store", store, "--index", "0")
	victim := role("server", "--store", store, "--index", "1")
	role("worker", "--index", "0")
	leaver := role("worker", "--index", "1")
	monitor := []string{"--out", out, "--metrics", metrics, "--eval-every", "50"}
	first := role("monitor", monitor...)
	step := regexp.MustCompile(`(?m)^kintsugi_step (\d+)$`)
	reaches := func(n int) {
		eventually(t, fmt.Sprintf("the metrics tell of step %d", n), func() bool {
			m := step.FindStringSubmatch(get("http://" + metrics + "/metrics"))
			return m != nil && atLeast(m[1], n)
		})
	}
	reaches(20)
	status := start(t, "status", "--etcd", endpoint, "--json", "--listen-for", "1m") // the view ends while it listens, and then the run
	victim.signal(syscall.SIGKILL)
	eventually(t, "the metrics tell of the death", func() bool {
		return strings.Contains(get("http://"+metrics+"/metrics"), `kintsugi_failures_total{announced="false",role="server"} 1`)
	})
	leaver.signal(syscall.SIGTERM)
	if r := leaver.wait(); r.status != exitPreempted {
		t.Errorf("the worker that had notice ended with status %d: %s", r.status, r.stderr)
	}
	eventually(t, "the metrics tell of the departure", func() bool {
		return strings.Contains(get("http://"+metrics+"/metrics"), `kintsugi_failures_total{announced="true",role="worker"} 1`)
	})
	first.signal(syscall.SIGKILL)
	first.wait()
	second := role("monitor", monitor[:4]...) // without evaluations, as by default
	r := status.wait()
	var says struct {
		Step    kintsugi.Step `json:"step"`
		View    uint64        `json:"view"`
		Servers []struct {
			Conducts bool `json:"conducts"`
		} `json:"servers"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &says); err != nil || r.status != exitDone || says.Step < 10 || says.View < 2 || len(says.Servers) != 2 || !says.Servers[0].Conducts {
		t.Errorf("status ended with %d and said %s: %s: %v", r.status, r.stdout, r.stderr, err)
	}
	r = second.wait()
	if r.status != exitDone || !strings.Contains(r.stdout, " on none: 250 steps") || !strings.Contains(r.stdout, "server/1 failed at step ") {
		t.Errorf("the monitor ended with status %d and said %q: %s", r.status, r.stdout, r.stderr)
	}
	run := readRun(t, out)
	for i, s := range run.Steps {
		if s.Step != uint64(i+1) {
			t.Fatalf("step %d of the record is %d", i+1, s.Step)
		}
		if i > 0 && s.Seconds < run.Steps[i-1].Seconds {
			t.Fatalf("step %d was at %v s, the one before at %v s", s.Step, s.Seconds, run.Steps[i-1].Seconds)
		}
	}
	if s := run.Summary; len(run.Steps) != 250 || len(s.Failures) != 2 || s.Failures[0].Part != "server/1" || s.Failures[0].Announced || s.Failures[1].Part != "worker/1" || !s.Failures[1].Announced || !s.Failures[0].RecoverySeconds.Known() || s.ReworkSteps != 0 || s.Checkpoints == 0 {
		t.Errorf("%d steps, %+v", len(run.Steps), s)
	}
	if _, err := os.Stat(filepath.Join(out, "report.html")); err != nil {
		t.Error(err)
	}
	if r := start(t, "status", "--etcd", endpoint).wait(); r.status != exitDone || !strings.HasPrefix(r.stdout, "run default: over at step 250: all steps are done\n") {
		t.Errorf("when all is over status ends with %d and says %s%s", r.status, r.stdout, r.stderr)
	}
}

// get returns a page, or "" if nobody answers.
func get(url string) string {
	r, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

func atLeast(number string, n int) bool {
	x, err := strconv.Atoi(number)
	return err == nil && x >= n
}
