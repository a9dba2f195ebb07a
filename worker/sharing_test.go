package worker

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// If a server's connection breaks once, the memory that it lent is gone once; a wrong setting fails
// each time.
func TestThatMemoryCannotBeSharedIsBelievedAfterThreeSessions(t *testing.T) {
	w, cut := &worker{}, notShared{errors.New("readlink: no such file")}
	for i, s := range []struct {
		worked bool
		err    error
		wrong  bool
	}{
		{false, cut, false}, {false, cut, false}, {true, errors.New("cut"), false}, // it shared memory, and worked
		{false, cut, false}, {false, errors.New("refused"), false}, {false, cut, false}, {false, cut, true},
	} {
		w.worked = s.worked
		if err := w.believe(s.err); errors.Is(err, kintsugi.ErrUsage) != s.wrong || !errors.Is(err, s.err) && !errors.As(err, new(notShared)) {
			t.Errorf("session %d ended with %v; want a wrong setting: %v", i, err, s.wrong)
		}
	}
}
