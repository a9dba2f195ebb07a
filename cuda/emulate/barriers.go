//go:build gpu

package emulate

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/kernel"
)

// found matches what the emulation reports about accesses that a barrier would have ordered.
var found = regexp.MustCompile(`emulated driver: kernel (\w+): a (race in|read of shared memory that the block has not written)`)

// EveryBarrierIsNeeded leaves out one barrier after another in some families of kernels, and runs
// tests of the package, given as a pattern for each family. Each time the tests must find accesses
// that are no longer ordered. spare lists barriers that only order what other barriers order too.
func EveryBarrierIsNeeded(t *testing.T, tests map[string]string, spare ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs tests once for each barrier; run it without -short")
	}
	if *real {
		t.Skip("only the emulation can leave barriers out; run it without -real")
	}
	if *ptx {
		t.Skip("it asks for PTX itself; run it without -ptx")
	}
	Library(t)
	for family, pattern := range tests {
		for name, n := range barriers(t, family) {
			for i := range n {
				without := fmt.Sprintf("%s:%d", name, i)
				t.Run(without, func(t *testing.T) {
					t.Parallel()
					c := exec.Command(os.Args[0], "-test.run", pattern, "-test.failfast", "-ptx")
					c.Env = append(os.Environ(), Without+"="+without)
					out, err := c.CombinedOutput()
					needed := err != nil
					for _, s := range spare {
						if s == without && needed {
							t.Errorf("it is said to be spare, and is not: %v:\n%s", err, out)
						} else if s == without {
							return
						}
					}
					if m := found.FindSubmatch(out); !needed {
						t.Error("all tests pass without it")
					} else if m == nil || string(m[1]) != name {
						t.Errorf("%v, and it is not found why:\n%s", err, out[:min(len(out), 2000)])
					}
				})
			}
		}
	}
}

// barriers returns the kernels of a family that have barriers, of the block or of a warp, each with
// the number of its barriers.
func barriers(t *testing.T, family string) map[string]int {
	t.Helper()
	image, err := kernel.Image(family)
	if err != nil {
		t.Fatal(err)
	}
	n, in := map[string]int{}, ""
	for s := bufio.NewScanner(bytes.NewReader(image)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if name, ok := strings.CutPrefix(line, ".visible .entry "); ok {
			in = strings.TrimSuffix(name, "(")
		}
		if strings.HasPrefix(line, "bar.") {
			n[in]++
		}
	}
	return n
}
