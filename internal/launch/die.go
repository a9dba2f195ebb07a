package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// ServerStates lists the states of a server in which a fault can kill it.
func ServerStates() []string { return names(server.States()) }

// WorkerStates lists the states of a worker in which a fault can kill it.
func WorkerStates() []string { return names(worker.States()) }

func names[S ~string](states []S) []string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = string(s)
	}
	return list
}

// dieFile is the content of a control file.
type dieFile struct {
	State string `json:"state"`
	Times int    `json:"times"`
}

func diePath(dir string, p Part) string { return filepath.Join(dir, p.logName()+".die.json") }

// OrderDeaths writes a file to dir for each part that a fault kills in a certain state. Call it
// before the parts start. If two such faults name the same part, the last one counts.
func OrderDeaths(dir string, faults []Fault) error {
	for _, f := range faults {
		if f.At.State == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("fault %q: %w", f, err)
		}
		text, err := json.Marshal(dieFile{f.At.State, f.At.Times})
		if err != nil {
			return fmt.Errorf("fault %q: %w", f, err)
		}
		if err := os.WriteFile(diePath(dir, f.Part), append(text, '\n'), 0o666); err != nil {
			return fmt.Errorf("fault %q: %w", f, err)
		}
	}
	return nil
}

// Deaths returns a function that the process of part p must call whenever it enters a state. If
// OrderDeaths has written a file for p to dir, that function calls kill in the ordered state. The
// order is for one life: the file is removed before it is carried out. If the first life does not
// enter the state, the order stays for a later life that does.
func Deaths(dir string, p Part, kill func() error) (enter func(state string), err error) {
	nothing := func(string) {}
	text, err := os.ReadFile(diePath(dir, p))
	if errors.Is(err, fs.ErrNotExist) {
		return nothing, nil
	}
	if err != nil {
		return nothing, fmt.Errorf("read the fault of %s: %w", p, err)
	}
	var d dieFile
	if err := json.Unmarshal(text, &d); err != nil {
		return nothing, fmt.Errorf("read the fault of %s: %w", p, err)
	}
	waits := d.State == string(server.Joining)
	if !waits {
		if err := os.Remove(diePath(dir, p)); err != nil {
			return nothing, fmt.Errorf("read the fault of %s: %w", p, err)
		}
	}
	var mu sync.Mutex // held while dying, so that no other goroutine goes on meanwhile
	return func(state string) {
		mu.Lock()
		defer mu.Unlock()
		if state != d.State {
			return
		}
		if d.Times--; d.Times != 0 {
			return
		}
		if waits && os.Remove(diePath(dir, p)) != nil {
			return // otherwise the next life would die as well, and the one after it
		}
		_ = kill() // SIGKILL to the own process does not return
	}, nil
}
