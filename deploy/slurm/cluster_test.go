//go:build linux

package slurm

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. Slurm takes half a minute to notice the death of a node, and the
// machine may be busy.
const patience = 5 * time.Minute

// programs are the programs of Slurm that the cluster and the scripts need.
var programs = []string{"munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue", "sinfo"}

const packages = "apt-get install munge slurmctld slurmd slurm-client"

// nodeVariable marks the processes of a node of this cluster: its value is the folder of the
// cluster and the name of the node.
const nodeVariable = "KINTSUGI_TEST_NODE"

// A cluster is a Slurm on this machine: a controller, and daemons that stand for nodes. All its
// files are in a folder, and all its processes end with the test.
type cluster struct {
	t    *testing.T
	dir  string
	user uint32 // the user who submits jobs: nobody in particular, if this process is root

	guard    *exec.Cmd // ends all processes of the cluster when its input ends, which this process holds open: so they end however it ends
	lifeline io.Closer
}

// guarded tells the guard process the folder of its cluster.
const guarded = "KINTSUGI_TEST_GUARDED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(guarded); dir != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		endAll(dir)
		return
	}
	os.Exit(m.Run())
}

// endAll ends every process of the cluster in a folder.
func endAll(dir string) {
	mark := "SLURM_CONF=" + filepath.Join(dir, "slurm.conf") + "\x00"
	for range 100 {
		all := below(func(env string) bool { return strings.Contains(env, mark) })
		if len(all) == 0 {
			return
		}
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-time.After(100 * time.Millisecond) // killed processes take a moment to end
	}
}

// newCluster starts a Slurm with the nodes a1 to a4 for servers, in the partition stable, and b1
// and b2 with room for one worker each, in spot. Jobs of the partition urgent preempt those on b1
// and b2. The partition wide has a node more for workers, c1, which no urgent job takes.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("there is no %s on this machine, which a Slurm needs: %s", name, packages)
		}
	}
	dir, err := os.MkdirTemp("", "kintsugi-slurm-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, user: uint32(os.Getuid())}
	c.guard = exec.Command("/proc/self/exe")
	c.guard.Env, c.guard.SysProcAttr = append(os.Environ(), guarded+"="+dir), &syscall.SysProcAttr{Setpgid: true}
	c.lifeline, err = c.guard.StdinPipe()
	c.must(err)
	c.must(c.guard.Start())
	t.Cleanup(c.end)
	if c.user == 0 {
		c.user = 65534
	}
	c.must(os.Chmod(dir, 0o755))
	c.must(os.MkdirAll(c.at("state"), 0o755))
	c.must(os.MkdirAll(c.at("runs"), 0o777))
	c.must(os.Chmod(c.at("runs"), 0o777))
	for from, to := range map[string]string{"../../bin/kintsugi": "bin/kintsugi", "run.sh": "deploy/slurm/run.sh", "servers.sbatch": "deploy/slurm/servers.sbatch", "workers.sbatch": "deploy/slurm/workers.sbatch"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatalf("%v: run make build", err)
		}
		c.must(os.MkdirAll(filepath.Dir(c.at(to)), 0o755))
		c.must(os.WriteFile(c.at(to), text, 0o755))
	}
	key := make([]byte, 1024)
	_, err = rand.Read(key)
	c.must(err)
	c.must(os.WriteFile(c.at("munge.key"), key, 0o400))
	c.must(os.WriteFile(c.at("slurm.conf"), []byte(c.configuration()), 0o644))
	c.daemon("munged", nil, "--foreground", "--force", "--key-file="+c.at("munge.key"), "--socket="+c.at("munge.socket"),
		"--pid-file="+c.at("munge.pid"), "--log-file="+c.at("munge.log"), "--seed-file="+c.at("munge.seed"))
	c.eventually("munged has its socket", func() bool { _, err := os.Stat(c.at("munge.socket")); return err == nil })
	c.daemon("slurmctld", nil, "-D", "-f", c.at("slurm.conf"))
	for _, name := range nodes {
		c.begin(name)
	}
	c.eventually("all nodes are idle", func() bool {
		out, err := c.command("sinfo", "--noheader", "--Node", "--format=%N %T").Output()
		idle := slices.Compact(slices.Sorted(strings.Lines(string(out))))
		return err == nil && len(idle) == len(nodes) && !slices.ContainsFunc(idle, func(line string) bool { return !strings.HasSuffix(line, " idle\n") })
	})
	return c
}

var nodes = []string{"a1", "a2", "a3", "a4", "b1", "b2", "c1"}

// configuration is the cluster's slurm.conf.
func (c *cluster) configuration() string {
	host, err := os.Hostname()
	c.must(err)
	host, _, _ = strings.Cut(host, ".")
	me, err := user.Current()
	c.must(err)
	conf := []string{
		"ClusterName=kintsugi", "SlurmctldHost=" + host + "(127.0.0.1)", fmt.Sprint("SlurmctldPort=", c.port()), "SlurmUser=" + me.Username, "SlurmdUser=" + me.Username,
		"AuthType=auth/munge", "AuthInfo=socket=" + c.at("munge.socket"),
		"StateSaveLocation=" + c.at("state"), "SlurmdSpoolDir=" + c.at("%n"), "SlurmctldPidFile=" + c.at("slurmctld.pid"), "SlurmdPidFile=" + c.at("%n.pid"),
		"SlurmctldLogFile=" + c.at("slurmctld.log"), "SlurmdLogFile=" + c.at("%n.log"),
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none", "MailProg=/bin/true", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core",
		"SlurmdParameters=config_overrides", "SlurmdTimeout=10", "KillWait=30", "MinJobAge=36000", "ReturnToService=1",
		"PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", fmt.Sprint("FirstJobId=", 1000+time.Now().UnixNano()%50000),
	}
	for i, name := range nodes {
		cpus := 4
		if name[0] != 'a' {
			cpus = 1
		}
		conf = append(conf, fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.%d Port=%d CPUs=%d", name, host, 11+i, c.port(), cpus))
	}
	conf = append(conf, "PartitionName=stable Nodes=a[1-4] Default=YES PriorityTier=5 PreemptMode=OFF",
		"PartitionName=spot Nodes=b[1-2] PriorityTier=1 PreemptMode=REQUEUE GraceTime=40",
		"PartitionName=wide Nodes=b[1-2],c1 PriorityTier=1 PreemptMode=REQUEUE GraceTime=40", "PartitionName=urgent Nodes=b[1-2] PriorityTier=9 PreemptMode=OFF", "")
	return strings.Join(conf, "\n")
}

// begin starts a node.
func (c *cluster) begin(name string) {
	c.daemon("slurmd", []string{nodeVariable + "=" + c.dir + "/" + name}, "-D", "-N", name, "-f", c.at("slurm.conf"))
}

// daemon starts a daemon that stays in the foreground.
func (c *cluster) daemon(name string, env []string, args ...string) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "SLURM_CONF="+c.at("slurm.conf")), env...)
	cmd.Dir, cmd.SysProcAttr = c.dir, &syscall.SysProcAttr{Setpgid: true}
	said, err := os.Create(c.at(name + ".out"))
	c.must(err)
	cmd.Stdout, cmd.Stderr = said, said
	c.must(cmd.Start())
	c.must(said.Close())
	go func() { _ = cmd.Wait() }()
}

// command returns a command of the user who submits jobs.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.at("runs")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "KINTSUGI") || strings.HasPrefix(v, "SLURM") || strings.HasPrefix(v, "SBATCH")
	})
	cmd.Env = append(env, "SLURM_CONF="+c.at("slurm.conf"), "HOME="+c.at("runs"))
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
	}
	return cmd
}

// says returns the output of a user's command, which must succeed.
func (c *cluster) says(name string, args ...string) string {
	c.t.Helper()
	cmd := c.command(name, args...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errors.String())
	}
	return strings.TrimSpace(string(out))
}

// kill makes a node die: its daemon and every process on it, none of which may see another one die.
func (c *cluster) kill(name string) {
	c.t.Helper()
	mark := nodeVariable + "=" + c.dir + "/" + name + "\x00"
	var all []int
	for n := -1; n != len(all); {
		n = len(all)
		all = below(func(env string) bool { return strings.Contains(env, mark) })
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
	slices.Sort(all)
	slices.Reverse(all) // children first, since a stopped process whose parent has died goes on
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	c.t.Logf("%s dies, and %d processes", name, len(all))
}

// end ends every process of the cluster.
func (c *cluster) end() {
	if c.t.Failed() {
		for _, pattern := range []string{"slurmctld.log", "runs/*/logs/servers.log", "runs/*/logs/worker-*.log", "runs/*/logs/watchman.log"} {
			logs, _ := filepath.Glob(c.at(pattern))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				c.t.Logf("%s:\n%s", log, text[max(0, len(text)-3000):])
			}
		}
	}
	c.must(c.lifeline.Close())
	c.must(c.guard.Wait())
	if c.t.Failed() {
		c.t.Logf("what the cluster had is in %s", c.dir)
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

// below returns the processes whose environment satisfies is, and all their descendants, without
// zombies.
func below(is func(env string) bool) (all []int) {
	entries, _ := os.ReadDir("/proc")
	children := make(map[int][]int)
	var next []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if f[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		children[parent] = append(children[parent], pid)
		if env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err == nil && is(string(env)+"\x00") {
			next = append(next, pid)
		}
	}
	seen := make(map[int]bool)
	for len(next) > 0 {
		pid := next[0]
		next = next[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		all = append(all, pid)
		next = append(next, children[pid]...)
	}
	return all
}

// A run is a submitted run.
type run struct {
	*cluster
	name           string
	servers, array string // numbers of jobs
	jobs           int    // how many there are: of the servers, and of each worker
	hurried        map[string]time.Time
}

// submit starts a run by the command that users type. more is added to the settings of workers.
func (c *cluster) submit(name, settings string, more ...string) *run {
	c.t.Helper()
	return c.submitAs("default", name, settings, more...)
}

// submitAs is submit with a name of the run that may be another than the usual one. The folder of
// the run has a name of its own.
func (c *cluster) submitAs(as, name, settings string, more ...string) *run {
	c.t.Helper()
	return c.submitWith([]string{"-w", "--partition=spot"}, as, name, settings, more...)
}

// submitWith is submitAs with options for workers.
func (c *cluster) submitWith(options []string, as, name, settings string, more ...string) *run {
	c.t.Helper()
	file := c.at("runs/" + name + ".yaml")
	c.must(os.WriteFile(file, []byte(settings), 0o644))
	args := slices.Concat([]string{"KINTSUGI_RUN=" + as, "bash", c.at("deploy/slurm/run.sh"), "-s", "--partition=stable"}, options, []string{c.at("runs/" + name), file}, more)
	c.t.Log(c.says("env", args...))
	r := &run{cluster: c, name: name, jobs: 3, hurried: make(map[string]time.Time)}
	jobs, err := os.ReadFile(r.file("jobs"))
	c.must(err)
	r.servers, r.array, _ = strings.Cut(strings.TrimSpace(string(jobs)), ",")
	return r
}

// file returns a path in the run's folder.
func (r *run) file(name string) string { return filepath.Join(r.at("runs"), r.name, name) }

// states returns the states of the job of the servers and of each worker.
func (r *run) states() []string {
	out, err := r.command("squeue", "--noheader", "--array", "--states=all", "--jobs="+r.servers+","+r.array, "--sort=i", "--format=%T").Output()
	if err != nil {
		return nil // Slurm is busy
	}
	return strings.Fields(string(out))
}

// soon makes Slurm start a job that was requeued within a few seconds; by itself it waits two
// minutes. In the second in which it ended, a node refuses a job as revoked.
func (r *run) soon() {
	for _, job := range strings.Fields(r.says("squeue", "--noheader", "--array", "--states=PENDING", "--jobs="+r.servers+","+r.array, "--format=%i")) {
		if time.Since(r.hurried[job]) > time.Minute {
			r.hurried[job] = time.Now()
			_, _ = r.command("scontrol", "update", "JobId="+job, "StartTime=now+5").Output()
		}
	}
}

func (c *cluster) at(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// port returns a free port of the loopback interface.
func (c *cluster) port() int {
	c.t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	c.must(err)
	c.must(lis.Close())
	return lis.Addr().(*net.TCPAddr).Port
}

// eventually waits until something is so.
func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	late := time.After(patience)
	look := time.NewTicker(300 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-late:
			c.t.Fatalf("in %v it has not come to be that %s", patience, what)
		}
	}
}

// pids returns the processes of kintsugi on this cluster that have part in their arguments.
func (r *run) pids(part string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.ReplaceAll(string(text), "\x00", " ")
		if err == nil && strings.HasPrefix(args, r.at("bin/kintsugi")+" ") && strings.Contains(args, r.file("")) && strings.Contains(args, part) {
			pids = append(pids, pid)
		}
	}
	return pids
}
