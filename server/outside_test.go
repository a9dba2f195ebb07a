package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server"
)

// Memory outside the process protects a run. If there is no room for it, the run goes on without,
// and the server does not leave as if its shard were outside.
func TestAServerWithoutRoomOutsideGoesOn(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	for path, alone := range map[string]bool{full: true, filepath.Join(t.TempDir(), "state"): false} {
		o, err := server.OpenOutside(path, "run")
		if err != nil {
			t.Fatal(err)
		}
		s := startOutside(t, kintsugi.RuleSGD, 100, o)
		s.join(0, 1)
		p := s.push()
		s.send(p, id(0), 1, s.frames...)
		s.wantReceived(p, id(0))
		if s.server.StandsIn() != alone {
			t.Errorf("%s: its shard is in its process alone: %v, want %v", path, !alone, alone)
		}
	}
}
