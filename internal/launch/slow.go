package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Slower makes a worker take factor times as long to compute from now on; 1 makes it as fast as it
// can be. The worker itself does it: nothing from outside slows computation without slowing what
// should stay fast, the answers to its peers.
type Slower func(worker int, factor float64) error

// slowFile is the content of a control file.
type slowFile struct {
	SlowFactor float64 `json:"slow_factor"`
}

func slowPath(dir string, worker int) string {
	return filepath.Join(dir, Part{Worker, worker}.logName()+".json")
}

// SlowFiles returns a Slower that leaves the factor in a file per worker under dir, which it creates.
// A file outlives the worker's process, so that a slow worker that dies comes back slow.
func SlowFiles(dir string) Slower {
	return func(worker int, factor float64) error {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		text, err := json.Marshal(slowFile{factor})
		if err != nil {
			return err
		}
		// Renamed into place: a worker that polls never reads half a file.
		path := slowPath(dir, worker)
		if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o666); err != nil {
			return err
		}
		return os.Rename(path+".tmp", path)
	}
}

// SlowFactor returns the factor that SlowFiles(dir) last left for a worker; 1 if it left none. Workers
// call it before each gradient: it costs one system call while there is no file.
func SlowFactor(dir string, worker int) (float64, error) {
	text, err := os.ReadFile(slowPath(dir, worker))
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 1, fmt.Errorf("slow factor of worker/%d: %w", worker, err)
	}
	var f slowFile
	if err := json.Unmarshal(text, &f); err != nil || f.SlowFactor < 1 {
		return 1, fmt.Errorf("slow factor of worker/%d: %s holds %q; want a slow_factor of at least 1", worker, slowPath(dir, worker), text)
	}
	return f.SlowFactor, nil
}
