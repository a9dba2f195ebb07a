package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Survivors reads the logs of a run's servers, which must be JSON. It returns how many shards were
// kept from one line to the next, and how many of these had different parameters or optimizer
// state, in any bit, at the beginning of the next line than at the end of the one before.
func Survivors(dir string) (kept, touched int, err error) {
	logs, err := filepath.Glob(filepath.Join(record.LogsDir(dir), "server-*.log"))
	if err != nil {
		return 0, 0, err
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return kept, touched, fmt.Errorf("read the log of a server: %w", err)
		}
		k, t := outlived(text)
		kept, touched = kept+k, touched+t
	}
	return kept, touched, nil
}

// outlived reads the log of one server.
func outlived(log []byte) (kept, touched int) {
	type place struct{ shard, line, step uint64 }
	before := make(map[place]uint64) // checksums of what a server has when a line begins that keeps it
	waits := make(map[[2]uint64]bool)
	in := bufio.NewScanner(bytes.NewReader(log))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e struct {
			Message                string `json:"msg"`
			Shard, Line, Step, Sum uint64
		}
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue
		}
		switch at := (place{e.Shard, e.Line, e.Step}); e.Message {
		case "a shard waits for its line to begin":
			before[at] = e.Sum
			waits[[2]uint64{e.Shard, e.Line}] = true
		case "a shard goes on":
			if !waits[[2]uint64{e.Shard, e.Line}] {
				continue // it was lost, and has come back
			}
			kept++
			if sum, ok := before[at]; !ok || sum != e.Sum {
				touched++
			}
		}
	}
	return kept, touched
}
