package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The run of ../check/testdata/processes.values goes on to its end, while pods of workers and
// servers are evicted and killed, and a node is lost. It has one worker more than places: a spare is
// in the place of one that is gone long before that one's next pod.
func TestARunOutlivesItsPods(t *testing.T) {
	c := newCluster(t, 4)
	objects, err := os.ReadFile(filepath.Join("..", "check", "testdata", "processes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.volume("a")
	c.volume("b")
	c.apply(objects)
	go c.names(t.Context())
	c.eventually("the run takes steps", func() bool { return c.status().Step > 50 })

	worker := c.pod("run-worker", 1)
	c.evict(worker.Name)
	c.replaced("run-worker", 1, worker)
	worker = c.pod("run-worker", 2)
	c.kill(worker)
	c.replaced("run-worker", 2, worker)

	// Two servers are drained from their nodes, one after the other. The disruption budget makes
	// the second wait until the first has caught up.
	server, next := c.pod("run-server", 1), c.pod("run-server", 2)
	c.ready(3)
	c.evict(server.Name)
	if err := c.tryEvict(next.Name); !api.IsTooManyRequests(err) {
		t.Errorf("a second server may be evicted before the first is back: %v", err)
	}
	c.evict(next.Name)
	c.replaced("run-server", 2, next)
	c.ready(3)
	server = c.pod("run-server", 1)
	c.kill(server)
	c.replaced("run-server", 1, server)
	c.together()

	i := c.losable()
	server = c.pod("run-server", i)
	c.lose(server.Spec.NodeName)
	c.eventually("steps go on while a node is away", c.goes)
	c.remove(server.Spec.NodeName)
	c.replaced("run-server", i, server)
	c.together()

	c.complete("run-worker", "run-server", "run-coordinator", "run-monitor")
	if s := c.summary(); s.Steps != 4000 || s.Rework != 0 || len(s.Failures) < 4 {
		t.Errorf("%+v", s)
	}
}

// A release that is uninstalled in the middle of its run has a last checkpoint, long before the
// next one is due. When it is installed again, the run goes on from it. So does one that was stopped
// early, once that is taken back.
func TestARunGoesOnWhenItIsInstalledAgain(t *testing.T) {
	c := newCluster(t, 2)
	objects, err := os.ReadFile(filepath.Join("..", "check", "testdata", "again.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		c.volume(name)
	}
	c.apply([]byte("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: shared}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"))
	c.apply(objects)
	go c.names(t.Context())
	c.eventually("the run takes steps", func() bool { return c.status().Step > 200 })
	before := c.status().Step
	c.delete(objects)
	saved := c.saved()
	if saved < before || saved >= 1000 {
		t.Errorf("the newest checkpoint is of step %d, and step %d had been taken", saved, before)
	}
	c.apply(objects)
	c.eventually("the run has gone on", func() bool { return c.status().Step > saved+100 })

	all := []string{"run-worker", "run-server", "run-coordinator", "run-monitor"}
	c.stop("--reason", "enough")
	c.complete(all...)
	stopped := c.summary()
	if stopped.Reason != "enough" || stopped.Steps <= saved+100 || stopped.Steps >= 1500 || stopped.Rework != 0 {
		t.Errorf("it was stopped: %+v", stopped)
	}
	c.stop("--undo")
	c.delete(objects)
	if saved = c.saved(); saved != stopped.Steps {
		t.Errorf("the newest checkpoint is of step %d, and the run was stopped at step %d", saved, stopped.Steps)
	}
	c.apply(objects)
	c.complete(all...)
	if s := c.summary(); s.Steps != 1500 || s.Rework != 0 {
		t.Errorf("%+v", s)
	}
}

// stop runs `kintsugi stop`.
func (c *cluster) stop(args ...string) {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), os.Getenv("KINTSUGI_STATIC"), append([]string{"stop", "--etcd", c.etcd(), "--run", "run"}, args...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("stop %v: %v: %s", args, err, out)
	}
	c.t.Logf("%s", out)
}

// summary is the outcome of a run.
type summary struct {
	Reason   string `json:"reason"`
	Steps    int    `json:"steps"`
	Rework   int    `json:"rework_steps"`
	Failures []any  `json:"failures"`
}

func (c *cluster) summary() (s summary) {
	c.t.Helper()
	b, err := os.ReadFile(c.path("claims/run-report/run/summary.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%d steps, of which %d were done again; %d failures", s.Steps, s.Rework, len(s.Failures))
	return s
}

// saved returns the step of the newest checkpoint.
func (c *cluster) saved() int {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), os.Getenv("KINTSUGI_STATIC"), "checkpoint", "list", c.path("claims/shared/checkpoints")).CombinedOutput()
	m := regexp.MustCompile(`(?m)^\s*(\d+)\s`).FindSubmatch(out)
	if err != nil || m == nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	step, _ := strconv.Atoi(string(m[1]))
	return step
}

// complete waits until Jobs are complete, and ends the test if one has failed.
func (c *cluster) complete(jobs ...string) {
	c.t.Helper()
	for _, name := range jobs {
		c.eventually(name+" is complete", func() bool {
			j, err := c.client.BatchV1().Jobs("default").Get(c.t.Context(), name, meta.GetOptions{})
			if err != nil {
				return false
			}
			for _, x := range j.Status.Conditions {
				if x.Type == batch.JobFailed && x.Status == core.ConditionTrue {
					c.t.Fatalf("%s has failed: %s: %s", name, x.Reason, x.Message)
				}
				if x.Type == batch.JobComplete && x.Status == core.ConditionTrue {
					return true
				}
			}
			return false
		})
	}
}

// have returns the nodes on which the pods of a role are.
func (c *cluster) have(role string) (nodes []string) {
	c.t.Helper()
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), meta.ListOptions{LabelSelector: "app.kubernetes.io/component=" + role})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range pods.Items {
		nodes = append(nodes, p.Spec.NodeName)
	}
	return nodes
}

// losable returns the place of a server on a node without etcd, since without etcd nothing is
// replaced and nobody is known to be dead. If possible, the node has a coordinator too.
func (c *cluster) losable() (place int) {
	c.t.Helper()
	etcd, coordinators := c.have("etcd"), c.have("coordinator")
	if len(coordinators) != 2 || coordinators[0] == coordinators[1] {
		c.t.Errorf("the coordinators are on %q; want two nodes", coordinators)
	}
	place = -1
	for i := range 3 {
		on := c.pod("run-server", i).Spec.NodeName
		if !slices.Contains(etcd, on) && (place < 0 || slices.Contains(coordinators, on)) {
			place = i
		}
	}
	if place < 0 {
		c.t.Fatal("all servers are on the node of etcd")
	}
	return place
}

// pod returns the pod that has a place, once it runs.
func (c *cluster) pod(job string, index int) *core.Pod {
	c.t.Helper()
	var found *core.Pod
	c.eventually(fmt.Sprintf("%s-%d runs", job, index), func() bool {
		found = c.running(job, index)
		return found != nil
	})
	return found
}

func (c *cluster) running(job string, index int) *core.Pod {
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), meta.ListOptions{LabelSelector: fmt.Sprintf("batch.kubernetes.io/job-name=%s,batch.kubernetes.io/job-completion-index=%d", job, index)})
	if err != nil {
		return nil
	}
	for _, p := range pods.Items {
		if p.Status.Phase == core.PodRunning && p.DeletionTimestamp == nil {
			return &p
		}
	}
	return nil
}

// ready waits until n servers are ready.
func (c *cluster) ready(n int32) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d servers are ready", n), func() bool {
		j, err := c.client.BatchV1().Jobs("default").Get(c.t.Context(), "run-server", meta.GetOptions{})
		b, err2 := c.client.PolicyV1().PodDisruptionBudgets("default").Get(c.t.Context(), "run-server", meta.GetOptions{})
		return err == nil && err2 == nil && j.Status.Ready != nil && *j.Status.Ready == n && b.Status.CurrentHealthy == n
	})
}

// replaced waits until a place has another pod.
func (c *cluster) replaced(job string, index int, before *core.Pod) {
	c.t.Helper()
	began := time.Now()
	c.eventually(fmt.Sprintf("%s-%d is another pod", job, index), func() bool {
		p := c.running(job, index)
		return p != nil && p.UID != before.UID
	})
	c.log.Info("replaced", "job", job, "index", index, "seconds", time.Since(began).Seconds())
}

func (c *cluster) tryEvict(name string) error {
	return c.client.PolicyV1().Evictions("default").Evict(c.t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "default"}})
}

// evict evicts a pod, as draining a node does, and tries again while a disruption budget refuses.
func (c *cluster) evict(name string) {
	c.t.Helper()
	c.eventually(name+" is evicted", func() bool {
		err := c.tryEvict(name)
		if err != nil && !api.IsTooManyRequests(err) {
			c.t.Fatal(err)
		}
		return err == nil
	})
}

// kill sends SIGKILL to the process of a pod.
func (c *cluster) kill(p *core.Pod) {
	c.t.Helper()
	if !c.nodes[p.Spec.NodeName].Kill(p.Name) {
		c.t.Fatalf("%s does not run on %s", p.Name, p.Spec.NodeName)
	}
}

// lose turns a node's machine off.
func (c *cluster) lose(node string) {
	c.log.Info("a node is lost", "node", node)
	c.off[node]()
}

// remove does what a cloud does with a node whose machine is gone.
func (c *cluster) remove(node string) {
	c.t.Helper()
	if err := c.client.CoreV1().Nodes().Delete(c.t.Context(), node, meta.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// etcd returns the address of etcd, or nothing while it has none.
func (c *cluster) etcd() string {
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), meta.ListOptions{LabelSelector: "app.kubernetes.io/component=etcd"})
	if err != nil || len(pods.Items) == 0 || pods.Items[0].Status.PodIP == "" {
		return ""
	}
	return pods.Items[0].Status.PodIP + ":2379"
}

// status is what `kintsugi status` reports of the run.
type status struct {
	Step    int `json:"step"`
	Servers []struct {
		Incarnation int   `json:"incarnation"`
		Heads       []int `json:"heads"`
		Follows     []int `json:"follows"`
		CatchesUp   bool  `json:"catches_up"`
		Outside     bool  `json:"outside"`
	} `json:"servers"`
	Workers []int `json:"workers"`
}

func (c *cluster) status() (s status) {
	etcd := c.etcd()
	if etcd == "" {
		return s
	}
	out, err := exec.CommandContext(c.t.Context(), os.Getenv("KINTSUGI_STATIC"), "status", "--etcd", etcd, "--run", "run", "--json", "--listen-for", "1s").Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	_ = json.Unmarshal(out, &s) // empty, while nobody knows anything of the run
	return s
}

// goes reports whether the run makes steps.
func (c *cluster) goes() bool {
	a := c.status()
	b := c.status()
	return a.Step > 0 && b.Step > a.Step
}

// together waits until all are there, each shard has the replicas that it should have, and steps go
// on.
func (c *cluster) together() {
	c.t.Helper()
	c.eventually("everybody is there", func() bool {
		s := c.status()
		whole := len(s.Servers) == 3 && len(s.Workers) == 3
		for _, x := range s.Servers {
			whole = whole && x.Incarnation > 0 && len(x.Heads)+len(x.Follows) == 2 && !x.CatchesUp && !x.Outside
		}
		return whole && c.goes()
	})
}
