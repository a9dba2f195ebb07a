package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// cmd/kintsugi shows with processes that several etcds survive each one of them. In one process, an
// etcd that ends leaves connections to the others behind.

func TestEnsemblesThatCannotAgreeAreRefused(t *testing.T) {
	for what, m := range map[string]Ensemble{
		"itself is missing":  {Name: "d", Peers: map[string]string{"a": "h:1", "b": "h:2", "c": "h:3"}, Listen: "h:9"},
		"an even number":     {Name: "a", Peers: map[string]string{"a": "h:1", "b": "h:2"}, Listen: "h:9"},
		"no port":            {Name: "a", Peers: map[string]string{"a": "h"}, Listen: "h:9"},
		"one address twice":  {Name: "a", Peers: map[string]string{"a": "h:1", "b": "h:1", "c": "h:2"}, Listen: "h:9"},
		"too seldom":         {Name: "a", Peers: map[string]string{"a": "h:1"}, Listen: "h:9", Beat: time.Minute},
		"nowhere to listen":  {Name: "a", Peers: map[string]string{"a": "h:1"}},
		"a peer has no name": {Name: "", Peers: map[string]string{"": "h:1"}, Listen: "h:9"},
	} {
		if err := m.Check(); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Others dial an etcd by name; it listens at numbers.
func TestAnEtcdAmongSeveralListensAtNumbers(t *testing.T) {
	m := Ensemble{Name: "b", Peers: map[string]string{"a": "etcd-a:2380", "b": "etcd-b:2380", "c": "10.0.0.3:2380"}, Listen: ":2379"}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	cfg := m.config(t.TempDir(), Options{})
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	for what, got := range map[string][2]string{
		"listens to peers at":    {cfg.ListenPeerUrls[0].Host, "0.0.0.0:2380"},
		"is reached by peers at": {cfg.AdvertisePeerUrls[0].Host, "etcd-b:2380"},
		"listens to clients at":  {cfg.ListenClientUrls[0].Host, "0.0.0.0:2379"},
		"is one of":              {cfg.InitialCluster, "a=http://etcd-a:2380,b=http://etcd-b:2380,c=http://10.0.0.3:2380"},
	} {
		if got[0] != got[1] {
			t.Errorf("it %s %s, want %s", what, got[0], got[1])
		}
	}
}

// An etcd that is alone has no peers, so several of them on one host need no ports for these. It
// finds its data again.
func TestEtcdsThatAreAloneShareAHost(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for range 2 {
		var all []*Embedded
		for _, dir := range dirs {
			alone := &Ensemble{Name: "a", Peers: map[string]string{"a": "127.0.0.1:2380"}, Listen: "127.0.0.1:0"}
			e, err := Embed(within(t), dir, Options{Among: alone, UnsafeNoFsync: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		for _, e := range all {
			e.Close()
		}
	}
}
