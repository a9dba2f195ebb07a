package peers_test

import (
	"os/exec"
	"testing"
)

// The scripts read the logs that they write, also while a line is being written, and find in the
// steps of a run what a death has cost.
func TestWhatADeathCostIsReadFromLogs(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("it runs Python, which is not here: install python3: %v", err)
	}
	b, err := exec.Command("python3", "-B", "-c", `
import os, sys
import compare, steps

path = os.path.join(sys.argv[1], "log")
reader = steps.Reader(path)
assert not reader.read().steps, "there is a log before it is written"
log = steps.Log(path)
log.step(1, 2)
log.file.write("12.5 2")
log.file.flush()
assert [n for _, n, _ in reader.read().steps] == [1], reader.steps
log.file.write(" 2\n")
assert [n for _, n, _ in reader.read().steps] == [1, 2] and reader.process == os.getpid(), reader.steps

# Steps 2 and 3 are taken back, and until 5.0 one worker is missing.
taken = [(0.0, 1, 2), (1.0, 2, 2), (2.0, 3, 2), (3.5, 2, 1), (4.0, 3, 1), (4.5, 4, 1), (5.0, 5, 2), (6.0, 6, 2)]
kill = compare.Kill(taken, 2.5)
assert (kill.next, kill.lost, kill.whole) == (1.0, 2, 2.5), vars(kill)
assert compare.Run(taken, []).rate == 5 / 6, compare.Run(taken, []).rate

# Nothing is taken back, and nobody is missed.
kill = compare.Kill([(0.0, 1, 2), (1.0, 2, 2)], 0.5)
assert (kill.next, kill.lost, kill.whole) == (0.5, 0, 0.5), vars(kill)
`, t.TempDir()).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, b)
	}
}
