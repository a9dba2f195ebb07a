package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// cluster is a control plane with its nodes.
type cluster struct {
	t      *testing.T
	dir    string
	config *rest.Config
	client kubernetes.Interface
	log    *slog.Logger
	nodes  map[string]*Node
	off    map[string]context.CancelFunc // turns a node off
}

// newCluster starts a control plane. make kubernetes builds what it needs.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	plane, binary := os.Getenv("KINTSUGI_PLANE"), os.Getenv("KINTSUGI_STATIC")
	if plane == "" || binary == "" {
		t.Skip("KINTSUGI_PLANE and KINTSUGI_STATIC name no programs: run make kubernetes")
	}
	if os.Getuid() != 0 {
		t.Fatal("only root may change the root of a process: run it as root")
	}
	dir, err := os.MkdirTemp(filepath.Dir(binary), "cluster-") // on the file system of the program, since pods' roots have a link to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		} else {
			t.Logf("logs are in %s", dir)
		}
	})
	_ = os.Chmod(dir, 0o755)
	c := &cluster{t: t, dir: dir, log: slog.New(slog.NewTextHandler(t.Output(), nil)), nodes: make(map[string]*Node), off: make(map[string]context.CancelFunc)}
	c.startPlane(plane, binary)
	for i := range nodes {
		c.node(binary, i)
	}
	c.eventually(fmt.Sprintf("%d nodes are ready", nodes), func() bool { // otherwise all pods would be on the first node
		list, err := c.client.CoreV1().Nodes().List(t.Context(), meta.ListOptions{})
		return err == nil && len(list.Items) == nodes && !slices.ContainsFunc(list.Items, func(n core.Node) bool { return len(n.Status.Conditions) == 0 || len(n.Spec.Taints) > 0 })
	})
	return c
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

// file writes a file of the control plane.
func (c *cluster) file(name, content string) string {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return c.path(name)
}

// start runs a program of the control plane until the test ends.
func (c *cluster) start(name, program string, args ...string) {
	c.t.Helper()
	out, err := os.Create(c.path(name + ".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
}

func freePort(t *testing.T) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	return port
}

func (c *cluster) startPlane(plane, binary string) {
	c.t.Helper()
	etcd, peer, api := freePort(c.t), freePort(c.t), freePort(c.t)
	c.start("etcd", binary, "etcd", "--listen", "127.0.0.1:"+etcd, "--peer", "a=127.0.0.1:"+peer, "--dir", c.path("etcd"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	accounts := c.file("accounts.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	token := rand.Text()
	tokens := c.file("tokens.csv", token+`,root,root,"system:masters"`+"\n")
	c.start("kube-apiserver", plane, "kube-apiserver", "--etcd-servers=http://127.0.0.1:"+etcd, "--secure-port="+api, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--cert-dir="+c.path("certs"), "--service-account-issuer=https://cluster.test", "--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none")
	c.config = &rest.Config{Host: "https://127.0.0.1:" + api, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 200, Burst: 400}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		c.t.Fatal(err)
	}
	kubeconfig := c.file("kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "c", "user": {"token": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, c.config.Host, token))
	c.eventually("the API server is ready", func() bool {
		b, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(c.t.Context())
		return err == nil && string(b) == "ok"
	})
	c.start("kube-controller-manager", plane, "kube-controller-manager", "--kubeconfig="+kubeconfig, "--secure-port=0", "--leader-elect=false", "--node-monitor-grace-period=15s")
	c.start("kube-scheduler", plane, "kube-scheduler", "--kubeconfig="+kubeconfig, "--secure-port=0", "--leader-elect=false")
	c.eventually("pods may be made", func() bool {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(c.t.Context(), "default", meta.GetOptions{})
		return err == nil
	})
}

// node starts a node.
func (c *cluster) node(binary string, i int) {
	c.t.Helper()
	n := &Node{Name: fmt.Sprintf("node-%d", i), Number: i, Dir: c.path("pods"), Claims: c.path("claims"), Binary: binary, Client: c.client, Log: c.log}
	for _, d := range []string{n.Dir, n.Claims} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := n.Run(ctx); err != nil {
			c.log.Error("a node has ended", "node", n.Name, "err", err)
		}
	}()
	c.nodes[n.Name], c.off[n.Name] = n, func() { cancel(); <-ended }
	c.t.Cleanup(c.off[n.Name])
}

// volume makes a volume for a claim.
func (c *cluster) volume(name string) {
	c.t.Helper()
	_, err := c.client.CoreV1().PersistentVolumes().Create(c.t.Context(), &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: core.PersistentVolumeSpec{
		Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("10Gi")}, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
		PersistentVolumeSource: core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: c.path("claims")}},
	}}, meta.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// apply makes objects as kubectl create does, with the API server's strictest validation. A claim
// that exists is kept.
func (c *cluster) apply(rendered []byte) {
	c.t.Helper()
	c.each(rendered, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := r.Create(c.t.Context(), o, meta.CreateOptions{FieldValidation: "Strict"})
		if o.GetKind() == "PersistentVolumeClaim" && api.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// delete deletes objects as helm uninstall does, all at once, except those that are kept, and waits
// until no pod is left.
func (c *cluster) delete(rendered []byte) {
	c.t.Helper()
	background := meta.DeletePropagationBackground
	c.each(rendered, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		if o.GetAnnotations()["helm.sh/resource-policy"] == "keep" {
			return nil
		}
		return r.Delete(c.t.Context(), o.GetName(), meta.DeleteOptions{PropagationPolicy: &background})
	})
	c.eventually("no pod is left", func() bool {
		pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), meta.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
}

// each calls f for each object.
func (c *cluster) each(rendered []byte, f func(dynamic.ResourceInterface, *unstructured.Unstructured) error) {
	c.t.Helper()
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		c.t.Fatal(err)
	}
	mapper, dyn := restmapper.NewDiscoveryRESTMapper(groups), dynamic.NewForConfigOrDie(c.config)
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		var o unstructured.Unstructured
		if err := d.Decode(&o.Object); err == io.EOF {
			return
		} else if err != nil {
			c.t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		kind := o.GroupVersionKind()
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := f(dyn.Resource(m.Resource).Namespace("default"), &o); err != nil {
			c.t.Errorf("%s %s: %v", kind.Kind, o.GetName(), err)
		}
	}
}

// names keeps the hosts files in pods' roots up to date, since services have no addresses here.
func (c *cluster) names(ctx context.Context) {
	for ctx.Err() == nil {
		pods, err := c.client.CoreV1().Pods("default").List(ctx, meta.ListOptions{})
		services, err2 := c.client.CoreV1().Services("default").List(ctx, meta.ListOptions{})
		if err == nil && err2 == nil {
			var hosts strings.Builder
			for _, s := range services.Items {
				for _, p := range pods.Items {
					if p.Status.PodIP == "" || p.DeletionTimestamp != nil || len(s.Spec.Selector) == 0 || !selects(s.Spec.Selector, p.Labels) {
						continue
					}
					fmt.Fprintf(&hosts, "%s %s\n", p.Status.PodIP, s.Name)
					if p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name {
						fmt.Fprintf(&hosts, "%s %s.%s\n", p.Status.PodIP, p.Spec.Hostname, s.Name)
					}
				}
			}
			for _, n := range c.nodes {
				if err := n.Names(hosts.String()); err != nil {
					c.log.Error("write names", "err", err)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// eventually waits until something holds.
func (c *cluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if holds() {
			c.log.Info("seen", "what", what)
			return
		}
	}
	c.t.Fatalf("never: %s", what)
}
