package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// That several etcds outlive each of them is shown with processes, in cmd/kintsugi: in one process etcd leaves connections between them behind.

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
