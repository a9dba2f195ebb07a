package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	cache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
)

// beat is the time between two signs of life of a node.
const beat = 2 * time.Second

// Node is a machine of the cluster. Its pods are processes.
type Node struct {
	Name   string
	Number int    // the third byte of its pods' addresses
	Dir    string // for the roots of pods, on the file system of Claims
	Claims string // folder of volumes that outlive pods, one for each claim, of all nodes
	Binary string // static: there is nothing else in the root of a pod
	Client kubernetes.Interface
	Log    *slog.Logger

	mu   sync.Mutex
	pods map[types.UID]*pod
	last int // the last byte of the newest pod's address
}

// Run registers the node and runs its pods until ctx ends, as a machine that loses power: its
// processes are killed, and nobody is told.
func (n *Node) Run(ctx context.Context) error {
	n.pods = make(map[types.UID]*pod)
	defer n.kill()
	if err := n.register(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.live(ctx) })
	list := cache.NewListWatchFromClient(n.Client.CoreV1().RESTClient(), "pods", meta.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", n.Name))
	_, _, w, done := watchtools.NewIndexerInformerWatcher(list, &core.Pod{})
	defer func() { w.Stop(); <-done }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.ResultChan():
			if p, ok := e.Object.(*core.Pod); ok {
				n.sees(ctx, e.Type, p)
			}
		}
	}
}

func (n *Node) register(ctx context.Context) error {
	lots := core.ResourceList{
		core.ResourceCPU: resource.MustParse("64"), core.ResourceMemory: resource.MustParse("256Gi"), core.ResourcePods: resource.MustParse("100"),
	}
	made, err := n.Client.CoreV1().Nodes().Create(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: n.Name, Labels: map[string]string{core.LabelHostname: n.Name}}}, meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register %s: %w", n.Name, err)
	}
	now := meta.Now()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // controllers look after a node from when they see it
		made.Status = core.NodeStatus{Capacity: lots, Allocatable: lots, Conditions: []core.NodeCondition{{
			Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Here", LastHeartbeatTime: now, LastTransitionTime: now,
		}}}
		_, err := n.Client.CoreV1().Nodes().UpdateStatus(ctx, made, meta.UpdateOptions{})
		if err != nil {
			if newer, got := n.Client.CoreV1().Nodes().Get(ctx, n.Name, meta.GetOptions{}); got == nil {
				made = newer
			}
		}
		return err
	})
}

// live renews the lease of the node.
func (n *Node) live(ctx context.Context) {
	leases := n.Client.CoordinationV1().Leases(core.NamespaceNodeLease)
	seconds := int32(40)
	for {
		now := meta.NewMicroTime(time.Now())
		spec := coordination.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}
		l, err := leases.Get(ctx, n.Name, meta.GetOptions{})
		if err != nil {
			_, err = leases.Create(ctx, &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: n.Name}, Spec: spec}, meta.CreateOptions{})
		} else {
			l.Spec = spec
			_, err = leases.Update(ctx, l, meta.UpdateOptions{})
		}
		if err != nil && ctx.Err() == nil {
			n.Log.Debug("renew a lease", "node", n.Name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(beat):
		}
	}
}

// sees takes what the API server says of a pod.
func (n *Node) sees(ctx context.Context, event watch.EventType, p *core.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	here := n.pods[p.UID]
	switch {
	case event == watch.Deleted: // by force, if it is still here
		if here != nil {
			here.stop(0)
		}
	case p.DeletionTimestamp != nil && here == nil:
		n.remove(ctx, p)
	case p.DeletionTimestamp != nil:
		here.stop(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	case here == nil && p.Status.Phase == core.PodPending:
		n.last++
		here = &pod{node: n, object: p.DeepCopy(), address: fmt.Sprintf("127.7.%d.%d", n.Number, n.last), stopped: make(chan struct{})}
		n.pods[p.UID] = here
		go here.run(ctx)
	}
}

// remove says that nothing of a deleted pod is left.
func (n *Node) remove(ctx context.Context, p *core.Pod) {
	now := int64(0)
	err := n.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, meta.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &meta.Preconditions{UID: &p.UID}})
	if err != nil && ctx.Err() == nil {
		n.Log.Debug("remove a pod", "pod", p.Name, "err", err)
	}
}

// kill ends all processes at once.
func (n *Node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		p.kill()
	}
}

// Kill sends SIGKILL to the process of a pod, and reports whether it runs here.
func (n *Node) Kill(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.object.Name == name && p.kill() {
			return true
		}
	}
	return false
}

// Names writes what names mean into the roots of all pods: a service is its pods, and those of a
// StatefulSet have names below it.
func (n *Node) Names(hosts string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all error
	for _, p := range n.pods {
		if err := os.WriteFile(filepath.Join(p.root(), "etc", "hosts"), []byte(hosts), 0o644); !errors.Is(err, os.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}
