package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Slower makes a worker take factor times as long to compute from now on; 1 restores full speed.
// The worker slows itself down: slowing it from outside would also slow its answers to other
// processes.
type Slower func(worker int, factor float64) error

// slowFile is the content of a control file.
type slowFile struct {
	SlowFactor float64 `json:"slow_factor"`
}

func slowPath(dir string, worker int) string {
	return filepath.Join(dir, Part{Worker, worker}.logName()+".json")
}

// SlowFiles returns a Slower that writes the factor to a file for each worker in dir, which it
// creates. The file outlives the worker's process, so a slow worker that dies comes back slow.
func SlowFiles(dir string) Slower {
	return func(worker int, factor float64) error {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		text, err := json.Marshal(slowFile{factor})
		if err != nil {
			return err
		}
		// Rename it into place, so that a worker never reads a part of the file.
		path := slowPath(dir, worker)
		if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o666); err != nil {
			return err
		}
		return os.Rename(path+".tmp", path)
	}
}

// SlowFactor returns the factor that SlowFiles(dir) last wrote for a worker, or 1 if there is none.
// Workers call it before each gradient. Without a file it costs one system call.
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
