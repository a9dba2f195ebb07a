package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

func TestPresenceTellsOfEachComingAndGoingOnce(t *testing.T) {
	var p presence
	var story []string
	book := func(gone []departure, came []launch.Part) {
		for _, d := range gone {
			story = append(story, fmt.Sprintf("%v#%d gone: %s", d.part, d.incarnation, d.cause))
		}
		for _, part := range came {
			story = append(story, part.String()+" there")
		}
	}
	now := time.Unix(1, 0)
	leases := func(role launch.Role, incarnations ...kintsugi.Incarnation) {
		var list []etcd.Member
		for i, inc := range incarnations {
			if inc > 0 {
				list = append(list, etcd.Member{Index: uint32(i), Incarnation: inc})
			}
		}
		book(p.members(now, role, list))
	}
	view := func(reason string, chains [][]kintsugi.ServerID, incarnations ...kintsugi.Incarnation) {
		v := kintsugi.View{Reason: reason, Chains: chains}
		for _, inc := range incarnations {
			v.Servers = append(v.Servers, kintsugi.Member{Incarnation: inc})
		}
		book(p.views(now, v))
	}
	both := [][]kintsugi.ServerID{{0, 1}, {1, 0}}
	leases(launch.Server, 1, 1)
	leases(launch.Worker, 1, 1)
	view("all are here", both, 1, 1)
	leases(launch.Worker, 1, 1) // nothing new
	view("server/1 is gone", [][]kintsugi.ServerID{{0}, {0}}, 1, 1)
	leases(launch.Server, 1, 0) // known
	leases(launch.Server, 1, 2)
	view("server/1 comes in", both, 1, 2)
	view("server/0 has restarted", both, 3, 2) // before etcd says so here
	leases(launch.Server, 3, 2)
	leases(launch.Worker, 1, 0)
	leases(launch.Worker, 2, 0)
	leases(launch.Worker, 2, 2)
	lapsed := "its lease in etcd is gone: it died, left, or cannot reach etcd"
	if want := []string{
		"server/0 there", "server/1 there", "worker/0 there", "worker/1 there",
		"server/1#1 gone: server/1 is gone", "server/1 there",
		"server/0#1 gone: server/0 has restarted", "server/0 there",
		"worker/1#1 gone: " + lapsed, "worker/0#1 gone: another process has taken its place", "worker/0 there", "worker/1 there",
	}; !slices.Equal(story, want) {
		t.Errorf("got %q\nwant %q", story, want)
	}

	// Who comes late hears of nobody who was gone before, whatever is told first.
	for _, leasesFirst := range []bool{false, true} {
		p, story = presence{}, nil
		if leasesFirst {
			leases(launch.Server, 1, 1)
		}
		view("server/1 is gone", [][]kintsugi.ServerID{{0}, {0}}, 1, 1)
		leases(launch.Server, 1, 1)
		leases(launch.Server, 1, 0)
		leases(launch.Server, 1, 2)
		if slices.ContainsFunc(story, func(s string) bool { return strings.Contains(s, "gone") }) || story[len(story)-1] != "server/1 there" {
			t.Errorf("leases first: %v: %q", leasesFirst, story)
		}
	}
}

// A run whose processes are started one by one, as on several hosts, is followed by a monitor that is killed and started again: each step is in its record once,
// and a server that is killed meanwhile is in its summary, with what that cost.
func TestAMonitorFollowsARunThatOthersStarted(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	out, endpoint, metrics := filepath.Join(dir, "watched"), freeAddress(t), freeAddress(t)
	file := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(file, []byte("model: qp:dimension=400,condition=30,noise=0.1\nblas: gonum\nworkers: 1\nservers: 2\nreplicas: 2\nsteps: 150\ngradient-time: 10ms\nfault: []\nstore: \"\"\n"), 0o666); err != nil {
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
	status := start(t, "status", "--etcd", endpoint, "--json", "--listen-for", "500ms")
	victim.signal(syscall.SIGKILL)
	eventually(t, "the metrics tell of the death", func() bool {
		return strings.Contains(get("http://"+metrics+"/metrics"), `kintsugi_failures_total{announced="false",role="server"} 1`)
	})
	first.signal(syscall.SIGKILL)
	first.wait()
	second := role("monitor", monitor...)
	r := status.wait()
	var says runStatus
	if err := json.Unmarshal([]byte(r.stdout), &says); err != nil || r.status != exitDone || says.Step < 10 || len(says.Servers) != 2 || !says.Servers[0].Conducts {
		t.Errorf("status ended with %d and said %s: %s: %v", r.status, r.stdout, r.stderr, err)
	}
	r = second.wait()
	if r.status != exitDone || !strings.Contains(r.stdout, " on none: 150 steps") || !strings.Contains(r.stdout, "server/1 failed at step ") {
		t.Errorf("the monitor ended with status %d and said %q: %s", r.status, r.stdout, r.stderr)
	}
	run := readRun(t, out)
	for i, s := range run.Steps {
		if s.Step != uint64(i+1) {
			t.Fatalf("step %d of the record is %d", i+1, s.Step)
		}
	}
	if s := run.Summary; len(run.Steps) != 150 || len(s.Failures) != 1 || s.Failures[0].Part != "server/1" || !s.Failures[0].RecoverySeconds.Known() || s.ReworkSteps != 0 || s.Checkpoints == 0 {
		t.Errorf("%d steps, %+v", len(run.Steps), s)
	}
	if _, err := os.Stat(filepath.Join(out, "report.html")); err != nil {
		t.Error(err)
	}
	if r := start(t, "status", "--etcd", endpoint).wait(); r.status != exitDone || !strings.HasPrefix(r.stdout, "run default: over at step 150: all steps are done\n") {
		t.Errorf("when all is over status ends with %d and says %s%s", r.status, r.stdout, r.stderr)
	}
}

// get returns a page, "" where nobody answers.
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
