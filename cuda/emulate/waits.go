//go:build gpu

package emulate

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

var (
	// waits matches what the emulation reports about each wait of a stream for an event: the works
	// that it orders.
	waits = regexp.MustCompile(`emulated driver: wait \d+: (.*)`)

	// unordered matches what the emulation reports about works that a wait would have ordered, and
	// the driver's refusal of a capture that lacks a wait.
	unordered = regexp.MustCompile(`a race of streams: .*|the host has changed byte .*|is freed before anybody has waited .*|CUDA_ERROR_STREAM_CAPTURE_\w+`)
)

// EveryWaitIsNeeded runs tests of the package, each given by a pattern, once for each time that a
// stream waits for an event in them. Each time that one wait is left out, and the reason why it is
// needed must be found: two works are unordered, or a capture is incomplete. A wait for a copy to
// the host is an exception: the emulation does not see what the host reads, and the test must fail
// by itself. spare lists, by pattern, the numbers of waits that order nothing.
func EveryWaitIsNeeded(t *testing.T, tests []string, spare map[string][]int) {
	t.Helper()
	if *real {
		t.Skip("only the emulation can leave waits out; run it without -real")
	}
	if *ptx {
		t.Skip("it asks for PTX itself; run it without -ptx")
	}
	Library(t)
	for _, pattern := range tests {
		out, err := without(pattern, 0)
		if err != nil {
			t.Fatalf("with all waits: %v:\n%s", err, out)
		}
		all := waits.FindAllSubmatch(out, -1)
		if len(all) == 0 {
			t.Fatalf("no stream waits for another one in %s", pattern)
		}
		for i, wait := range all {
			t.Run(fmt.Sprintf("%s:%d", pattern, i+1), func(t *testing.T) {
				t.Parallel()
				out, err := without(pattern, i+1)
				found := unordered.Find(out)
				switch byHost := bytes.HasSuffix(wait[1], []byte("behind a copy to the host")); {
				case slices.Contains(spare[pattern], i+1):
					if err != nil {
						t.Errorf("%s: it is said to be spare, and is not: %v:\n%s", wait[1], err, out)
					}
				case err == nil:
					t.Errorf("%s: all tests pass without it", wait[1])
				case found == nil && !byHost:
					t.Errorf("%s: %v, and it is not found why:\n%s", wait[1], err, out[:min(len(out), 2000)])
				default:
					t.Logf("%s: %s", wait[1], found)
				}
			})
		}
	}
}

// without runs the tests of a pattern without one wait; 0: with all waits.
func without(pattern string, wait int) ([]byte, error) {
	c := exec.Command(os.Args[0], "-test.run", pattern, "-test.failfast", "-ptx", "-unwaited", strconv.Itoa(wait))
	return c.CombinedOutput()
}
