//go:build linux

// Package slurm has the scripts that run Kintsugi under Slurm, and their tests.
package slurm

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

var onSlurm = flag.Bool("slurm", false, "run on a Slurm that is started on this machine")

// On any machine with a bash, a script that does not parse is found.
func TestTheScriptsAreBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"run.sh", "servers.sbatch", "workers.sbatch"} {
		if out, err := exec.Command(bash, "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Each of these begins with the command that a user types, on a Slurm of its own, and ends with all
// jobs completed.
func TestRunsUnderSlurm(t *testing.T) {
	if !*onSlurm {
		t.Skip("make slurm starts a Slurm on this machine, and these runs on it")
	}
	c := newCluster(t)
	t.Log(c.says("sinfo", "--version"))
	for _, story := range []struct {
		name string
		tell func(*cluster)
	}{
		{"a run trains to its end", endOfARun},
		{"a run with a wrong setting fails, and keeps nobody waiting", wrongSetting},
		{"a worker whose node is wanted leaves, and comes back", preemption},
		{"a spare takes the place of a worker whose node is wanted", spare},
		{"a server that is killed is begun again, one whose node dies on another node", deathsOfServers},
		{"with one replica a server that is killed finds its shard", memoryOutside},
		{"servers that have notice leave, and the run goes on where it was", noticeOfServers},
		{"a run that is stopped ends its jobs, and goes on under another name", stopped},
		{"the first node dies, and the run begins anew from its checkpoint", deathOfTheFirstNode},
	} {
		if !t.Run(story.name, func(t *testing.T) {
			c.t = t
			story.tell(c)
		}) {
			break // the state of the cluster is not known
		}
		c.t = t
	}
	c.t = t
}

// settings returns the settings of a run with that many servers, two workers and that many steps of
// a tenth of a second.
func settings(servers, steps int) string {
	return fmt.Sprintf("model: mlp\nservers: %d\nworkers: 2\nsteps: %d\ngradient-time: 100ms\nblas: builtin\n", servers, steps)
}

// reaches waits for a step.
func (r *run) reaches(step uint64) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s is at step %d", r.name, step), func() bool {
		r.soon()
		got, err := record.ReadRun(r.file("report"))
		return err == nil && len(got.Steps) > 0 && got.Steps[len(got.Steps)-1].Step >= step
	})
}

// ends waits for the end of all jobs, which must have completed after that many steps, and returns
// the record of the run.
func (r *run) ends(steps int) *record.Run {
	r.t.Helper()
	got := r.completes()
	if got.Steps[len(got.Steps)-1].Step != uint64(steps) {
		r.t.Fatalf("its summary is %+v", got.Summary)
	}
	return got
}

// completes waits for the end of all jobs, which must have completed, and returns the record of the
// run.
func (r *run) completes() *record.Run {
	r.t.Helper()
	r.eventually(r.name+" has ended", func() bool {
		r.soon()
		states := r.states()
		return len(states) == r.jobs && !slices.ContainsFunc(states, func(s string) bool { return s == "PENDING" || s == "RUNNING" || s == "COMPLETING" })
	})
	if states := r.states(); slices.ContainsFunc(states, func(s string) bool { return s != "COMPLETED" }) {
		r.t.Errorf("the jobs are %v", states)
	}
	got, err := record.ReadRun(r.file("report"))
	r.must(err)
	if len(got.Steps) == 0 {
		r.t.Fatalf("its summary is %+v", got.Summary)
	}
	for _, f := range got.Failures {
		r.t.Logf("%s failed at step %d (%s), announced: %v", f.Part, f.Step, f.Cause, f.Announced)
	}
	r.t.Logf("%s: %d steps, of which %d were done again", r.name, len(got.Steps), got.Summary.ReworkSteps)
	return got
}

// log returns a log of the run.
func (r *run) log(name string) string {
	text, err := os.ReadFile(r.file("logs/" + name + ".log"))
	r.must(err)
	return string(text)
}

func endOfARun(c *cluster) {
	r := c.submit("calm", settings(2, 60), "--", "--device", "cpu")
	if got := r.ends(60); len(got.Failures) > 0 {
		c.t.Errorf("something failed: %+v", got.Failures)
	}
	if left := r.pids(""); len(left) > 0 {
		c.t.Errorf("processes are left: %v", left)
	}
}

func wrongSetting(c *cluster) {
	r := c.submit("wrong", settings(2, 60)+"optimizer: none-such\n")
	r.eventually("its jobs have ended", func() bool {
		return slices.Equal(r.states(), []string{"FAILED", "FAILED", "FAILED"})
	})
	if over, err := os.ReadFile(r.file("over")); err != nil || string(over) != "78\n" {
		c.t.Errorf("it ended with status %q: %v", over, err)
	}
}

func preemption(c *cluster) {
	r := c.submit("wanted", settings(2, 500))
	r.reaches(50)
	urgent := c.says("sbatch", "--parsable", "--partition=urgent", "--nodes=1", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
	r.eventually("a worker has left after a notice", func() bool { return strings.Contains(r.log("worker-0")+r.log("worker-1"), "waits in the queue") })
	r.eventually("the urgent job has run", func() bool { return strings.Contains(r.says("scontrol", "show", "job", urgent), "JobState=COMPLETED") })
	got := r.ends(500)
	if f := got.Failures; len(f) != 1 || !strings.HasPrefix(f[0].Part, "worker/") || got.Summary.ReworkSteps != 0 {
		c.t.Errorf("the failures are %+v, %d steps were done again", f, got.Summary.ReworkSteps)
	} else if name := "worker-" + f[0].Part[len("worker/"):]; strings.Count(r.log(name), `"worker is up"`) != 2 {
		c.t.Errorf("its second life is missing:\n%s", r.log(name))
	}
}

// spare has a worker more than the run. It takes the place of one whose node is wanted, long before
// that one comes back, which is then the spare.
func spare(c *cluster) {
	r := c.submitWith([]string{"-w", "--partition=wide", "-x", "1"}, "default", "spare", settings(2, 600))
	r.jobs = 4
	r.reaches(50)
	const waits, works = `all places are filled`, `"worker is up"`
	wanted, waiting := "", ""
	for _, line := range strings.Split(r.says("squeue", "--noheader", "--array", "--jobs="+r.array, "--format=%K %N"), "\n") {
		element, on, _ := strings.Cut(line, " ")
		switch said := r.log("worker-" + element); {
		case !strings.Contains(said, works):
			waiting = element
		case strings.HasPrefix(on, "b"):
			wanted = strings.TrimSpace(on)
		}
	}
	if wanted == "" || waiting == "" || !strings.Contains(r.log("worker-"+waiting), waits) {
		c.t.Fatalf("no worker is on b1 or b2 (%q), or no spare waits (%q)", wanted, waiting)
	}
	c.says("sbatch", "--parsable", "--partition=urgent", "--nodelist="+wanted, "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
	r.eventually("the spare works", func() bool { return strings.Contains(r.log("worker-"+waiting), works) })
	got := r.ends(600)
	if f := got.Failures; len(f) != 1 || !strings.HasPrefix(f[0].Part, "worker/") || !f[0].Announced || got.Summary.ReworkSteps != 0 {
		c.t.Errorf("the failures are %+v, %d steps were done again", f, got.Summary.ReworkSteps)
	}
	alone := 0
	for _, s := range got.Steps {
		if s.Workers < 2 {
			alone++
		}
	}
	c.t.Logf("%d steps had one worker", alone)
	if last := got.Steps[len(got.Steps)-1]; len(last.Counted) != 2 {
		c.t.Errorf("the last step counts %d gradients, want 2", len(last.Counted))
	}
}

func deathsOfServers(c *cluster) {
	r := c.submit("deaths", settings(3, 1200))
	r.reaches(50)
	pids := r.pids("server --config " + r.file("run.yaml") + " --index 1 ")
	if len(pids) != 1 {
		c.t.Fatalf("server 1 is the processes %v", pids)
	}
	r.must(syscall.Kill(pids[0], syscall.SIGKILL))
	r.eventually("server 1 is begun again", func() bool { return strings.Count(r.log("server-1"), `"this server has caught up"`) == 1 })

	second := strings.Split(r.says("squeue", "--noheader", "--steps", "--jobs="+r.servers, "--format=%j %N"), "\n")
	at := ""
	for _, line := range second {
		if name, on, _ := strings.Cut(line, " "); name == "server-2" {
			at = strings.TrimSpace(on)
		}
	}
	r.kill(at)
	r.eventually("server 2 is begun again elsewhere", func() bool { return strings.Count(r.log("server-2"), `"this server has caught up"`) == 1 })
	r.begin(at)
	got := r.ends(1200)
	var parts []string
	for _, f := range got.Failures {
		parts = append(parts, f.Part)
	}
	if !slices.Equal(parts, []string{"server/1", "server/2"}) || got.Summary.ReworkSteps != 0 {
		c.t.Errorf("failed have %v, %d steps were done again", parts, got.Summary.ReworkSteps)
	}
}

func memoryOutside(c *cluster) {
	r := c.submit("outside", settings(1, 300))
	r.reaches(50)
	pids := r.pids("server --config")
	if len(pids) != 1 {
		c.t.Fatalf("the server is the processes %v", pids)
	}
	r.must(syscall.Kill(pids[0], syscall.SIGKILL))
	got := r.ends(300)
	if len(got.Failures) != 1 || len(got.Partials) != 0 || got.Summary.ReworkSteps != 0 {
		c.t.Errorf("failed have %+v, %d shards came back older, %d steps were done again", got.Failures, len(got.Partials), got.Summary.ReworkSteps)
	}
	r.eventually("nothing is left in memory", func() bool {
		left, _ := os.ReadDir("/dev/shm")
		return !slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "kintsugi-"+r.servers+"-") })
	})
}

// noticeOfServers is how servers see the end of a time limit, or the preemption of all nodes: as
// SIGTERM to steps.
func noticeOfServers(c *cluster) {
	r := c.submit("notice", settings(2, 400))
	r.reaches(50)
	r.says("scancel", "--signal=TERM", r.servers)
	r.eventually("the job begins anew", func() bool { r.soon(); return strings.Contains(r.log("servers"), "life 1") })
	if got := r.ends(400); got.Summary.ReworkSteps != 0 {
		c.t.Errorf("%d steps were done again", got.Summary.ReworkSteps)
	}
}

// stopped ends a run by hand and goes on from there, as docs/slurm.md says.
func stopped(c *cluster) {
	const steps = 3000 // five minutes, which the test need not wait for
	r := c.submit("stopped", settings(2, steps))
	r.reaches(50)
	address, err := os.ReadFile(r.file("address"))
	r.must(err)
	c.t.Log(r.says(r.at("bin/kintsugi"), "stop", "--etcd", strings.TrimSpace(string(address)), "--reason", "enough"))
	first := r.completes()
	last := first.Steps[len(first.Steps)-1].Step
	if first.Summary.Reason != "enough" || last >= steps {
		c.t.Errorf("it ended at step %d: %s", last, first.Summary.Reason)
	}
	r = c.submitAs("stopped-2", "stopped", settings(2, int(last)+50))
	again := r.ends(int(last) + 50)
	if !strings.Contains(r.log("server-0"), fmt.Sprintf(`"step":%d`, last)) {
		c.t.Errorf("it did not go on from step %d", last)
	}
	c.t.Logf("the second run has %d steps", len(again.Steps))
}

func deathOfTheFirstNode(c *cluster) {
	r := c.submit("first", settings(2, 600))
	r.reaches(120)
	first, _, _ := strings.Cut(r.says("scontrol", "show", "hostnames", r.says("squeue", "--noheader", "--jobs="+r.servers, "--format=%N")), "\n")
	r.kill(first)
	r.eventually("the job begins anew", func() bool { r.soon(); return strings.Contains(r.log("servers"), "life 1") })
	r.ends(600)
	r.begin(first)
	for _, name := range []string{"worker-0", "worker-1"} {
		if !strings.Contains(r.log(name), "the servers' job has begun anew") {
			c.t.Errorf("%s does not know where etcd is now:\n%s", name, r.log(name))
		}
	}
}
