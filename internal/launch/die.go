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

// OrderDeaths leaves word in dir for every part that a fault kills in a state of its own. It is called
// before the parts start. A part that two faults kill in this way gets the last one.
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

// Deaths returns a function that a process of p calls whenever it enters a state. If OrderDeaths has left
// word in dir, it kills the process, by kill, on the ordered occasion. The word is for one life: it is
// removed before it is carried out. That of a state which no first life enters waits for a life that does.
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
	var mu sync.Mutex // held while dying: nobody else goes on meanwhile
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
			return // the next life would die as well, and the one after it
		}
		_ = kill() // SIGKILL to oneself does not return
	}, nil
}
