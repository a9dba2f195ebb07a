package process

import (
	"fmt"
	"runtime"
	"strconv"
)

// KeepBusy starts a process that keeps all cores busy, as another program would, and returns a
// function that ends it. It ends with this process, and at the latest after two hours.
func KeepBusy(binary string) (end func(), err error) {
	c, err := Start(binary, "bench", "load", "--cores", strconv.Itoa(runtime.GOMAXPROCS(0)), "--for", "2h")
	if err != nil {
		return nil, fmt.Errorf("keep the cores busy: %w", err)
	}
	return c.end, nil
}
