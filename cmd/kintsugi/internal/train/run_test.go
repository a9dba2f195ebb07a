package train

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// A run ends when its etcd tells it so. If its own etcd gives up, that message never comes, and the
// run must end nevertheless.
func TestARunWhoseEtcdGivesUpEndsAndSaysHowToGoOn(t *testing.T) {
	e, err := etcd.Embed(t.Context(), t.TempDir(), etcd.Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	client, err := etcd.Dial(t.Context(), []string{e.Endpoint()}, "local")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	cluster, err := launch.New(launch.Config{Logs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Stop(t.Context()) }()
	full := errors.New("no space left on device")
	failed := make(chan error, 1)
	failed <- full
	r := &run{Training: &Training{Out: "runs/one"}, watcher: &watcher{client: client}, cluster: cluster, etcdFailed: failed}
	ended := make(chan error, 1)
	go func() {
		_, err := r.over(t.Context(), nil)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, full) || !strings.Contains(err.Error(), "--resume runs/one") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for ever")
	}
}
