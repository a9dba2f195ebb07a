package main

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
)

// A store fails after the launcher has tried it, before the first view. The run reports that with
// the store's own words. It begins when the store works again, and if it does not, the run ends at
// the first signal.
func TestARunWhoseStoreFailsBeforeItsFirstView(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	const begins = 2 // writes of the launcher, which tries the store
	for name, c := range map[string]struct {
		fault  objecttest.Fault
		says   string
		signal syscall.Signal // 0: the store works again
		status int
	}{
		"full, and comes back": {fault: objecttest.Fault{Status: http.StatusInsufficientStorage, Code: "XMinioStorageFull"}, says: "is full", status: exitDone},
		"full":                 {objecttest.Fault{Status: http.StatusInsufficientStorage, Code: "XMinioStorageFull"}, "is full", syscall.SIGTERM, exitPreempted},
		"503":                  {objecttest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, "503 SlowDown", syscall.SIGINT, exitInterrupted},
		"hangs":                {objecttest.Fault{Hang: true}, "no answer within", syscall.SIGTERM, exitPreempted},
		"hangs for ever":       {objecttest.Fault{Hang: true}, "looking for the newest checkpoint", syscall.SIGTERM, exitPreempted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := objecttest.New(t)
			var wrong atomic.Int32
			wrong.Store(-begins)
			server.Fail(func(_ int, r *http.Request) objecttest.Fault {
				if r.Method == http.MethodPut && wrong.Add(1) > 0 {
					return c.fault
				}
				return objecttest.Fault{}
			})
			dir := newDir(t)
			patience := "&patience=100ms"
			if name == "hangs for ever" {
				patience = "&patience=1h"
			}
			p := start(t, quadratic(300, "--store", server.Place("x")+patience, "--out", dir)...)
			eventually(t, "it says what the store does", func() bool {
				notes := notesOf(dir)
				return strings.Contains(notes, "the run has not begun") && strings.Contains(notes, c.says)
			})
			if c.signal == 0 {
				wrong.Store(math.MinInt32)
			} else {
				p.signal(c.signal)
			}
			r := p.wait()
			if r.status != c.status || !strings.Contains(r.stderr, "begins by itself") {
				t.Errorf("exit status %d:\n%s", r.status, r.stderr)
			}
			lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
			if last := lines[len(lines)-1]; c.signal != 0 && (!strings.Contains(last, "saves nothing") || !strings.Contains(last, c.says) || !strings.Contains(last, "--resume "+dir)) {
				t.Errorf("it says last\n%s", last)
			}
			noOrphans(t, dir)
			wrong.Store(math.MinInt32)
			if c.signal != 0 {
				must(t, "train", "--resume", dir)
			}
			if step, _ := lastParams(t, dir); step != 300 {
				t.Errorf("the newest checkpoint is of step %d", step)
			}
		})
	}
}

// notesOf returns the notes of a run, which may not have a folder yet.
func notesOf(dir string) string {
	r, err := record.ReadRun(dir)
	if err != nil {
		return ""
	}
	return fmt.Sprint(r.Notes)
}
