package failure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func megabytes(kilobytes int) record.Number {
	if kilobytes == 0 {
		return record.Unknown()
	}
	return record.Number(float64(kilobytes) * 1024 / 1e6)
}

// memory is the peak memory of the processes of a run, in kilobytes; zero: not known.
type memory struct {
	servers, workers int
	err              error
}

// watch watches the processes of a run until ctx ends. If the preset forgets checkpoints, it
// removes them during the first outage.
func (cfg *Config) watch(ctx context.Context, c Cell, pid int, out string) (most memory) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	forget := c.Preset.Forgets
	for {
		select {
		case <-ctx.Done():
			if forget && most.err == nil {
				most.err = errors.New("the run was over before its checkpoints could be removed")
			}
			return most
		case <-tick.C:
		}
		now := processes(pid)
		most.servers, most.workers = max(most.servers, now.servers), max(most.workers, now.workers)
		if since, ok := firstKill(out); forget && ok && time.Since(since) > cfg.Outage/4 {
			forget = false
			most.err = removeCheckpoints(filepath.Join(out, record.Checkpoints))
		}
	}
}

// removeCheckpoints empties a place except for the claims, which say whose it is. In a place
// without them, a run would load nothing and would not begin again.
func removeCheckpoints(dir string) error {
	for _, folder := range ckpt.Folders() {
		if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
			return err
		}
	}
	return nil
}

// firstKill returns the approximate time at which the first kill of a run was recorded.
func firstKill(out string) (at time.Time, ok bool) {
	f, err := os.Open(filepath.Join(out, "events.jsonl"))
	if err != nil {
		return at, false
	}
	defer f.Close()
	var start time.Time
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<22)
	for in.Scan() {
		var e struct {
			Kind, Action string
			Start        time.Time
			Seconds      float64
		}
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue
		}
		if e.Kind == "run" {
			start = e.Start
		}
		if e.Kind == "fault" && e.Action == "kill" {
			return start.Add(time.Duration(e.Seconds * float64(time.Second))), true
		}
	}
	return at, false
}

// processes returns the resident memory of the children of a launcher, including shared memory, or
// zero if /proc does not provide it.
func processes(parent int) (now memory) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return now
	}
	for _, task := range tasks {
		children, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(children)) {
			line, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
			if err != nil {
				continue // the process has ended
			}
			switch args := strings.Split(string(line), "\x00"); {
			case len(args) < 2:
			case args[1] == "server":
				now.servers += resident(child)
			case args[1] == "worker":
				now.workers += resident(child)
			}
		}
	}
	return now
}

func resident(pid string) int {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kilobytes := 0
	_, _ = fmt.Sscan(after, &kilobytes) // without the line it stays 0, which means unknown
	return kilobytes
}
