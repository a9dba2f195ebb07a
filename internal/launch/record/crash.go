package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// crashes are how the lines begin in which Go's runtime says why it ends a process, or its race
// detector that there is a race.
var crashes = [][]byte{[]byte("panic: "), []byte("fatal error: "), []byte("runtime: out of memory"), []byte("WARNING: DATA RACE")}

// Crashed reports whether a line of a process's output says that its program has a mistake: it has
// crashed, or the race detector has found a race.
func Crashed(line []byte) bool {
	return slices.ContainsFunc(crashes, func(c []byte) bool { return bytes.HasPrefix(line, c) })
}

// Crashes returns these lines of the logs of the run in dir, each behind the name of its log. A run
// goes on after a crash as after any other death, so who looks for mistakes has to look here.
func Crashes(dir string) (found []string, err error) {
	logs, err := filepath.Glob(filepath.Join(LogsDir(dir), "*.log"))
	if err != nil {
		return nil, err
	}
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			return found, err
		}
		r := bufio.NewReader(f)
		for {
			line, err := r.ReadSlice('\n') // a long line comes in pieces, of which the first counts
			if Crashed(line) {
				found = append(found, fmt.Sprintf("%s: %s", filepath.Base(name), bytes.TrimSpace(line)))
			}
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return found, errors.Join(err, f.Close())
			}
		}
		if err := f.Close(); err != nil {
			return found, err
		}
	}
	return found, nil
}
