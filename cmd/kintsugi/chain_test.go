package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// chainSteps is enough steps for a killed server to come back and catch up before the next one is
// killed.
const chainSteps = 650

// Servers are killed one after the other, including the one that the conductor runs on. No step is
// taken back, the run stays on its first line, and it ends with the same bits as an undisturbed
// run.
func TestServersOfChainsAreKilledAndTheParametersAreTheSame(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for _, c := range []struct{ servers, replicas int }{{2, 2}, {3, 3}} {
		if testing.Short() && c.servers > 2 {
			continue
		}
		flags := []string{"--servers", fmt.Sprint(c.servers), "--replicas", fmt.Sprint(c.replicas), "--recovery", "chain", "--seed", "5"}
		calm, dir := newDir(t), newDir(t)
		must(t, quadratic(chainSteps, append(flags, "--recovery", "checkpoint", "--replicas", "1", "--out", calm)...)...)
		faults := []string{"--out", dir, "--gradient-time", "5ms"}
		for i := range 4 {
			faults = append(faults, "--fault", fmt.Sprintf("kill server/%d at step %d", i%c.servers, 50+150*i))
		}
		must(t, quadratic(chainSteps, append(flags, faults...)...)...)
		noOrphans(t, dir)
		run := readRun(t, dir)
		s := run.Summary
		if s.Steps != chainSteps || s.ReworkSteps != 0 || len(s.Restores) > 0 || len(s.Failures) != 4 {
			t.Errorf("%+v: %d steps, %d of them twice, restores %+v, failures %+v", c, s.Steps, s.ReworkSteps, s.Restores, s.Failures)
		}
		for i := 1; i < len(run.Steps); i++ {
			if run.Steps[i].Step <= run.Steps[i-1].Step { // one may be missing: only a conductor that died could have reported it
				t.Errorf("%+v: after step %d the run tells of step %d", c, run.Steps[i-1].Step, run.Steps[i].Step)
			}
		}
		sameBits(t, dir, calm)
		must(t, "checkpoint", "verify", dir)
	}
}

// A head that hangs, and the conductor with it, is removed from its chains. When it continues,
// nobody obeys it. It comes in again as the tail and takes no pushes. The run ends with the bits of
// an undisturbed one.
func TestAHeadThatHangsIsFencedAndComesBackAsTheTail(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	flags := []string{"--recovery", "chain", "--seed", "5", "--checkpoint-every", "100000", "--decay", "constant"}
	dir := newDir(t)
	p := start(t, quadratic(1_000_000, append(flags, "--out", dir, "--log-level", "debug", "--fault", "pause server/0 at step 50 for 3s")...)...)
	back := func(v record.View) bool { return strings.Contains(v.Reason, "server/0 comes in") }
	eventually(t, "server/0 has come in again", func() bool {
		run, err := record.ReadRun(dir)
		return err == nil && slices.ContainsFunc(run.Views, back)
	})
	run := readRun(t, dir)
	p.reaches(dir, run.Summary.Steps+50)
	pushIsRefused(t, dir)
	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status != exitInterrupted {
		t.Fatalf("exit status %d:\n%s", r.status, r.stderr)
	}
	run = readRun(t, dir)
	if s := run.Summary; s.ReworkSteps != 0 || len(s.Restores) > 0 {
		t.Errorf("%d steps were done twice, restores %+v", s.ReworkSteps, s.Restores)
	}
	gone := slices.IndexFunc(run.Views, func(v record.View) bool { return strings.Contains(v.Reason, "server/0 is gone") })
	if last := run.Views[len(run.Views)-1]; gone < 0 || !back(last) || last.Conductor != 1 {
		t.Errorf("views %+v: want one without server/0, then one in which it follows server/1", run.Views)
	}
	step, _ := lastParams(t, dir)
	calm := newDir(t)
	must(t, quadratic(int(step), "--out", calm, "--seed", "5", "--decay", "constant")...)
	sameBits(t, dir, calm)
}

// pushIsRefused pushes to server 0 of a run, as a worker would that does not know that another
// server is the head. The push must be refused.
func pushIsRefused(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(record.LogsDir(dir), "server-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`address"?[=:]"?(127\.0\.0\.1:\d+)`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no address in %s", text)
	}
	peer, err := transport.Dial(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for name, call := range map[string]func(ctx context.Context) error{
		"push": func(ctx context.Context) error {
			s, err := peer.Push(ctx)
			if err != nil {
				return err
			}
			b := make([]byte, 4*kintsugi.MinChunkValues)
			h := transport.Header{Kind: transport.KindPush, Push: kintsugi.PushID{Line: 1, Incarnation: 1}, Chunks: kintsugi.ChunkRange{Hi: 1}, Bytes: uint32(len(b)), CRC: transport.Checksum(b)}
			if err := s.Send(&transport.Frame{Header: h, Payload: b}); err != nil {
				return err
			}
			_, err = s.Recv()
			return err
		},
		"commit": func(ctx context.Context) error {
			s, err := peer.Control(ctx)
			if err != nil {
				return err
			}
			if err := s.Send(transport.Control{Message: kintsugi.Take{Line: 1, View: 1, Fence: 1 << 40}}); err != nil {
				return err
			}
			_, err = s.Recv()
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := call(ctx); !errors.Is(err, kintsugi.ErrStaleView) {
			t.Errorf("a %s to a server that is no head any more: got %v, want %v", name, err, kintsugi.ErrStaleView)
		}
	}
}
