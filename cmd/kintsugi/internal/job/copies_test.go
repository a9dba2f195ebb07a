package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestTheWordsForCopies(t *testing.T) {
	for word, want := range map[string]Protection{
		"chain":             {checkpoints: true, Replicas: 2},
		"chain:next":        {checkpoints: true, Replicas: 3, Next: true},
		"chain:paper":       {checkpoints: true, Replicas: 3, Copies: 100},
		"chain:paper,1":     {checkpoints: true, Replicas: 3, Copies: 1},
		"chain:paper,25000": {checkpoints: true, Replicas: 3, Copies: 25000},
	} {
		if got, err := parseRecovery(word, 3); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", word, got, err, want)
		}
	}
	if got, err := parseRecovery("chain:paper", 2); err != nil || got.Replicas != 2 {
		t.Errorf("on two servers: %+v, %v", got, err)
	}
	s := Settings{Recovery: "chain:next", Servers: 3, Replicas: 2}
	if _, err := s.Protection(); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("chain:next with two replicas: %v", err)
	}
	for _, word := range []string{"chain:", "chain:3", "chain:paper,", "chain:paper,0", "chain:paper,-1", "chain:paper,1,2", "chain:papers", "chain:next,2", "chain:nextdoor"} {
		if _, err := parseRecovery(word, 3); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), chainForms) {
			t.Errorf("%q: %v", word, err)
		}
	}
}
