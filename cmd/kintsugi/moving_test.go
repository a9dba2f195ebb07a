package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/cluster"
)

// One of three servers is killed and never returns. Its shard moves to another server, as it was
// saved last. The other shards stay as they are, to the last bit, no step is taken back, and the
// run makes all of its steps.
func TestAServerThatNeverReturnsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	out := must(t, quadratic(200, "--recovery", "gold", "--servers", "3", "--move-after", "100ms", "--out", dir, "--fault", "kill server/1 at step 100 for 10m")...)
	noOrphans(t, dir)
	run := readRun(t, dir)
	s := run.Summary
	if s.Steps != 200 || s.ReworkSteps != 0 || len(s.Restores) > 0 || len(s.Failures) != 1 {
		t.Fatalf("%d steps, %d of them twice, restores %+v, failures %+v", s.Steps, s.ReworkSteps, s.Restores, s.Failures)
	}
	f := s.Failures[0]
	if f.Part != "server/1" || f.PartialChunks == 0 || f.Moved != "shard 1 to server/2" || !f.RecoverySeconds.Known() {
		t.Errorf("the failure is %+v", f)
	}
	v := run.Views[len(run.Views)-1]
	if !slices.Equal(v.Heads, []uint32{0, 2, 2}) || !strings.Contains(v.Reason, "server/1 has been away for 100ms; shard 1 is lost") {
		t.Errorf("the last view is %+v", v)
	}
	if kept, touched, err := cluster.Survivors(dir); kept != 2 || touched != 0 || err != nil {
		t.Errorf("%d shards have outlived the line, %d of them touched, %v; want 2, untouched", kept, touched, err)
	}
	if want := "it stayed away: shard 1 to server/2"; !strings.Contains(out, want) {
		t.Errorf("nothing says %q:\n%s", want, out)
	}
	must(t, "checkpoint", "verify", dir)
}

// A server comes back while the run goes on. It is sent its shard, which another server has
// meanwhile, and heads it again. The file in memory that it left when it was killed is not taken
// for its shard, neither then nor when it is killed again at home. The conductor runs beside its
// shard.
func TestAShardComesHomeToAServerThatReturns(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	p := start(t, quadratic(1500, "--recovery", "gold", "--servers", "3", "--move-after", "100ms", "--out", dir, "--gradient-time", "10ms",
		"--fault", "kill server/0 at step 100 for 7s")...)
	heads := func(want ...uint32) {
		t.Helper()
		eventually(t, "the shards are with their servers", func() bool {
			views := readRun(t, dir).Views
			return len(views) > 0 && slices.Equal(views[len(views)-1].Heads, want)
		})
	}
	p.reaches(dir, 100)
	heads(1, 1, 2)
	heads(0, 1, 2)
	home := readRun(t, dir)
	p.reaches(dir, home.Summary.Steps+20)
	for pid, args := range leftOf(t, dir) {
		if strings.HasPrefix(args, "kintsugi server --index 0") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := p.wait(); r.status != exitDone {
		t.Fatalf("status %d:\n%s", r.status, r.stderr)
	}
	noOrphans(t, dir)
	run := readRun(t, dir)
	if s := run.Summary; s.Steps != 1500 || s.ReworkSteps != 0 || len(s.Failures) != 2 || len(run.Partials) != 1 {
		t.Errorf("%d steps, %d of them twice, failures %+v; %d shards came back, want 1", s.Steps, s.ReworkSteps, s.Failures, len(run.Partials))
	}
	if last := run.Views[len(run.Views)-1]; last.Line != home.Views[len(home.Views)-1].Line {
		t.Errorf("killed at home, it does not find its shard: %+v", last)
	}
	must(t, "checkpoint", "verify", dir)
}
