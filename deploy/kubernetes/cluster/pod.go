package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pod is one of a node's pods. It has one container.
type pod struct {
	node    *Node
	object  *core.Pod
	address string

	mu      sync.Mutex
	process *os.Process // nil: none runs
	ending  sync.Once
	stopped chan struct{} // closed when it is to end
	grace   time.Duration
	rounds  int32 // how often the process was started again
	ready   bool  // what the probe for it has found; without one, that it runs
}

func (p *pod) root() string { return filepath.Join(p.node.Dir, string(p.object.UID)) }

// user is who processes are, as the chart says.
func (p *pod) user() (uid, gid int) {
	return int(*p.object.Spec.SecurityContext.RunAsUser), int(*p.object.Spec.SecurityContext.RunAsGroup)
}

// stop asks the process to end, and kills it when the time is up.
func (p *pod) stop(grace time.Duration) {
	p.ending.Do(func() {
		p.grace = grace
		close(p.stopped)
	})
}

func (p *pod) kill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process != nil && p.process.Kill() == nil
}

// run is the life of the pod: its process, again if it is to be, and what has come of it.
func (p *pod) run(ctx context.Context) {
	log := p.node.Log.With("pod", p.object.Name, "node", p.node.Name)
	began := meta.Now()
	give, err := p.prepare(ctx)
	defer give()
	for err == nil {
		p.mu.Lock()
		p.ready = p.object.Spec.Containers[0].ReadinessProbe == nil
		p.mu.Unlock()
		p.report(ctx, core.PodRunning, core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: meta.Now()}}, began)
		log.Info("starts")
		var status int
		if status, err = p.once(ctx); err != nil {
			break
		}
		log.Info("has ended", "status", status)
		if ctx.Err() != nil {
			return // the machine is gone
		}
		ended := core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: int32(status), FinishedAt: meta.Now(), StartedAt: began, Reason: "Ended"}}
		select {
		case <-p.stopped:
		default:
			if p.object.Spec.RestartPolicy == core.RestartPolicyAlways {
				p.rounds++
				time.Sleep(time.Second)
				continue
			}
		}
		phase := core.PodFailed
		if status == 0 {
			phase = core.PodSucceeded
		}
		give()
		p.report(ctx, phase, ended, began)
		<-p.stopped // the API server forgets it when it is deleted
		p.node.remove(ctx, p.object)
		return
	}
	log.Error("cannot run", "err", err)
}

// once runs the process once, and returns its status as shells do: 128 more than the signal that has killed it.
func (p *pod) once(ctx context.Context) (int, error) {
	c := p.object.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = p.value(e)
	}
	// As kubelets do: $(NAME) is the value of a variable, if there is one.
	expand := func(s string) string {
		return reference.ReplaceAllStringFunc(s, func(m string) string {
			if v, ok := env[m[2:len(m)-1]]; ok {
				return v
			}
			return m
		})
	}
	out, err := os.OpenFile(p.root()+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	cmd := &exec.Cmd{Path: "/kintsugi", Args: []string{"kintsugi"}, Dir: "/", Stdout: out, Stderr: out}
	for _, a := range c.Args {
		cmd.Args = append(cmd.Args, expand(a))
	}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	uid, gid := p.user()
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root(), Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.process = cmd.Process
	p.mu.Unlock()
	ended := make(chan struct{})
	go p.stopper(ctx, ended)
	go p.probe(ctx, c.ReadinessProbe, ended)
	err = cmd.Wait()
	close(ended)
	p.mu.Lock()
	p.process = nil
	p.mu.Unlock()
	if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit {
		return 0, err
	}
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

var reference = regexp.MustCompile(`\$\([A-Za-z_][A-Za-z0-9_]*\)`)

// stopper ends the process when the pod is to end, or the machine does.
func (p *pod) stopper(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
		p.kill()
		return
	case <-p.stopped:
	}
	end, left := time.NewTimer(p.grace), time.Duration(0)
	defer end.Stop()
	if l := p.object.Spec.Containers[0].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		left = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	select {
	case <-ended:
		return
	case <-time.After(left):
		p.mu.Lock()
		if p.process != nil {
			_ = p.process.Signal(syscall.SIGTERM)
		}
		p.mu.Unlock()
	case <-end.C:
		p.kill()
		return
	case <-ctx.Done():
		p.kill()
		return
	}
	select {
	case <-ended:
	case <-end.C:
		p.kill()
	case <-ctx.Done():
		p.kill()
	}
}

// probe asks the process whether it is ready until it has ended, and tells the API server when that changes.
func (p *pod) probe(ctx context.Context, probe *core.Probe, ended <-chan struct{}) {
	if probe == nil || probe.GRPC == nil {
		return
	}
	conn, err := grpc.NewClient(net.JoinHostPort(p.address, strconv.Itoa(int(probe.GRPC.Port))), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.node.Log.Error("probe a pod", "pod", p.object.Name, "err", err)
		return
	}
	defer conn.Close()
	began := meta.Now()
	for {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(probe.PeriodSeconds) * time.Second):
		}
		ask, cancel := context.WithTimeout(ctx, time.Second)
		a, err := healthpb.NewHealthClient(conn).Check(ask, &healthpb.HealthCheckRequest{})
		cancel()
		ready := err == nil && a.Status == healthpb.HealthCheckResponse_SERVING
		p.mu.Lock()
		changed := ready != p.ready && p.process != nil
		p.ready = ready
		p.mu.Unlock()
		if changed {
			p.node.Log.Info("readiness", "pod", p.object.Name, "ready", ready)
			p.report(ctx, core.PodRunning, core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: began}}, began)
		}
	}
}

// value returns that of a variable.
func (p *pod) value(e core.EnvVar) string {
	if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
		return e.Value
	}
	switch path := e.ValueFrom.FieldRef.FieldPath; path {
	case "status.podIP":
		return p.address
	case "metadata.name":
		return p.object.Name
	case "metadata.annotations['batch.kubernetes.io/job-completion-index']", "metadata.labels['batch.kubernetes.io/job-completion-index']":
		return p.object.Annotations["batch.kubernetes.io/job-completion-index"]
	default:
		panic("a node of this package does not know the field " + path)
	}
}

// prepare makes the root of the pod with its volumes. The function that it returns lets go of those
// that outlive the pod; it may be called twice.
func (p *pod) prepare(ctx context.Context) (give func(), err error) {
	var claims []func()
	give = sync.OnceFunc(func() {
		for _, f := range claims {
			f()
		}
	})
	if err := os.MkdirAll(filepath.Join(p.root(), "etc"), 0o755); err != nil {
		return give, err
	}
	if err := os.Link(p.node.Binary, filepath.Join(p.root(), "kintsugi")); err != nil {
		return give, err
	}
	volumes := make(map[string]core.VolumeSource)
	for _, v := range p.object.Spec.Volumes {
		volumes[v.Name] = v.VolumeSource
	}
	for _, m := range p.object.Spec.Containers[0].VolumeMounts {
		at, v := filepath.Join(p.root(), m.MountPath), volumes[m.Name]
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return give, err
		}
		switch {
		case v.ConfigMap != nil:
			err = p.files(ctx, v.ConfigMap.Name, at)
		case v.EmptyDir != nil:
			err = p.owned(at)
		case v.PersistentVolumeClaim != nil:
			kept := filepath.Join(p.node.Claims, v.PersistentVolumeClaim.ClaimName)
			if err = errors.Join(p.owned(kept), p.owned(at)); err == nil {
				err = syscall.Mount(kept, at, "", syscall.MS_BIND, "")
			}
			claims = append(claims, func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
		default:
			err = fmt.Errorf("a node of this package does not know the volume %+v", v)
		}
		if err != nil {
			return give, err
		}
	}
	return give, nil
}

// owned makes a folder for the processes of the pod.
func (p *pod) owned(dir string) error {
	if err := os.MkdirAll(dir, 0o770); err != nil {
		return err
	}
	uid, gid := p.user()
	return os.Chown(dir, uid, gid)
}

// files writes a ConfigMap.
func (p *pod) files(ctx context.Context, name, dir string) error {
	var m *core.ConfigMap
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) { // it may be made after the pod
		var err error
		m, err = p.node.Client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, name, meta.GetOptions{})
		return err == nil, nil
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	for k, v := range m.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, k), []byte(v), 0o644))
	}
	return err
}

// report tells the API server how the pod is.
func (p *pod) report(ctx context.Context, phase core.PodPhase, state core.ContainerState, began meta.Time) {
	for try := 0; ctx.Err() == nil && try < 5; try++ {
		pods := p.node.Client.CoreV1().Pods(p.object.Namespace)
		now, err := pods.Get(ctx, p.object.Name, meta.GetOptions{})
		if err != nil || now.UID != p.object.UID {
			return
		}
		p.mu.Lock()
		isReady := phase == core.PodRunning && p.ready
		p.mu.Unlock()
		ready := core.ConditionFalse
		if isReady {
			ready = core.ConditionTrue
		}
		for _, c := range []core.PodConditionType{core.PodReady, core.ContainersReady} {
			set(&now.Status, core.PodCondition{Type: c, Status: ready, LastTransitionTime: meta.Now()})
		}
		now.Status.Phase, now.Status.StartTime, now.Status.PodIP = phase, &began, p.address
		now.Status.PodIPs = []core.PodIP{{IP: p.address}}
		now.Status.ContainerStatuses = []core.ContainerStatus{{
			Name: p.object.Spec.Containers[0].Name, Image: p.object.Spec.Containers[0].Image, State: state, RestartCount: p.rounds,
			Ready: isReady, ContainerID: "process://" + strconv.Itoa(int(p.rounds)),
		}}
		if _, err = pods.UpdateStatus(ctx, now, meta.UpdateOptions{}); err == nil {
			return
		}
		p.node.Log.Debug("say how a pod is", "pod", p.object.Name, "err", err)
	}
}

// set replaces a condition.
func set(s *core.PodStatus, c core.PodCondition) {
	for i := range s.Conditions {
		if s.Conditions[i].Type == c.Type {
			s.Conditions[i] = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}
