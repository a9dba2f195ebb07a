package main

import (
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// newEtcd starts an etcd, which ends with the test.
func newEtcd(t *testing.T) (endpoint string, client *etcd.Client) {
	t.Helper()
	e, err := etcd.Embed(t.Context(), t.TempDir(), etcd.Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if client, err = etcd.Dial(t.Context(), []string{e.Endpoint()}, "default"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return e.Endpoint(), client
}

// A process of another release, or with other settings, that is started by mistake takes nobody's place.
func TestWhoHasOtherTermsTakesNoPlace(t *testing.T) {
	t.Parallel()
	endpoint, client := newEtcd(t)
	if _, err := client.PutView(t.Context(), 0, kintsugi.View{Number: 1, Terms: kintsugi.Terms{Protocol: kintsugi.ProtocolVersion, Model: 1}}); err != nil {
		t.Fatal(err)
	}
	for role, kind := range map[string]etcd.Kind{"server": etcd.Server, "worker": etcd.Worker} {
		r := kin(t, role, "--model", "qp", "--etcd", endpoint)
		if r.status != exitFailed || !strings.Contains(r.stderr, "this "+role+" has a model with fingerprint") || !strings.Contains(r.stderr, "start all with the run's configuration") {
			t.Errorf("%s ends with status %d:\n%s", role, r.status, r.stderr)
		}
		if members := <-client.WatchMembers(t.Context(), kind); len(members) > 0 {
			t.Errorf("%v has registered", members)
		}
	}
}
