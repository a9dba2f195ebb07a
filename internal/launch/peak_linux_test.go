package launch

import (
	"context"
	"runtime"
	"testing"
)

func TestPeak(t *testing.T) {
	for _, c := range []struct{ most, floor, seen, want uint64 }{
		{900, 100, 0, 900},   // never looked at, but the kernel knows
		{900, 100, 850, 900}, // grew after the last look
		{100, 100, 30, 30},   // the kernel says what the launcher had
		{100, 100, 0, 0},     // and nobody knows better
		{900, 0, 0, 900},     // where a process does not begin with its parent's
	} {
		if got := peak(c.most, c.floor, c.seen); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// To Linux, a process begins with the memory of the one that starts it.
func TestTheMemoryOfALauncherIsNotThatOfItsProcesses(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	large := make([]byte, 256<<20)
	for i := 0; i < len(large); i += 4096 {
		large[i] = 1
	}
	must(t, c.Start(m.spec(Part{Worker, 0}, "leaving")))
	m.next()
	must(t, c.Notice(Part{Worker, 0}))
	if e := await(t, events, ProcessDied); e.Exit.PeakBytes < 1<<20 || e.Exit.PeakBytes > 128<<20 {
		t.Errorf("%s has had %d bytes", e.Part, e.Exit.PeakBytes)
	}
	runtime.KeepAlive(large)
	m.next()
	must(t, c.Stop(context.Background()))
}
