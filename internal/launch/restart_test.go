package launch

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPausesBetweenRestartsDoubleUpToTheLongest(t *testing.T) {
	r := Restarts{Policy: RestartPolicy{First: time.Second, Longest: 5 * time.Second, Healthy: time.Hour}}
	now := time.Duration(0)
	var got []time.Duration
	for range 6 {
		r.Started(now)
		now += 20 * time.Second // longer than the window, so that the run is never given up
		v := r.Exited(now, Exit{Status: 1})
		if v.Kind != Restart {
			t.Fatalf("verdict %v, want a restart", v)
		}
		got = append(got, v.Pause)
	}
	s := time.Second
	if want := []time.Duration{0, s, 2 * s, 4 * s, 5 * s, 5 * s}; !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}

func TestAHealthyLifeMakesTheNextRestartQuickAgain(t *testing.T) {
	var r Restarts
	r.Started(0)
	first := r.Exited(time.Second, Exit{Status: 1}).Pause
	r.Started(2 * time.Second)
	if second := r.Exited(3*time.Second, Exit{Status: 1}).Pause; first != 0 || second != 50*time.Millisecond {
		t.Errorf("pauses of %v and %v, want none and 50ms", first, second)
	}
	r.Started(4 * time.Second)
	if third := r.Exited(14*time.Second, Exit{Signal: "segmentation fault", Status: -1}).Pause; third != first {
		t.Errorf("pause after a life of 10s is %v, want %v", third, first)
	}
}

func TestDeathsByFaultsNeverEndTheRun(t *testing.T) {
	var r Restarts
	for i := range 100 {
		now := time.Duration(i) * time.Millisecond
		r.Started(now)
		if v := r.Exited(now, Exit{Status: -1, Signal: "killed", Injected: true}); v.Kind != Restart || v.Pause != 0 {
			t.Fatalf("death %d: %+v, want a restart at once", i, v)
		}
	}
}

func TestFiveDeathsInTenSecondsWithoutProgressEndTheRun(t *testing.T) {
	var r Restarts
	for i := range 4 {
		if v := r.Exited(time.Duration(i)*2*time.Second, Exit{Status: 1}); v.Kind != Restart {
			t.Fatalf("death %d: %+v, want a restart", i, v)
		}
	}
	v := r.Exited(8*time.Second, Exit{Status: 1})
	if v.Kind != GiveUp || !strings.Contains(v.Reason, "died 5 times within 8s") || !strings.Contains(v.Reason, "exit status 1") {
		t.Errorf("fifth death: %+v", v)
	}
}

// When a container exceeds its memory, the most common sign is SIGKILL without any message.
func TestWhoeverTheSystemKillsIsToldOfMemory(t *testing.T) {
	for signal, told := range map[string]bool{"killed": true, "segmentation fault": false} {
		r := Restarts{Policy: RestartPolicy{Deaths: 1}}
		v := r.Exited(time.Second, Exit{Status: -1, Signal: signal})
		if v.Kind != GiveUp || strings.Contains(v.Reason, "short of memory") != told {
			t.Errorf("%s: %+v", signal, v)
		}
	}
}

func TestDeathsOfWhatComesAgainEndTheRunHoweverRareTheyAre(t *testing.T) {
	var r Restarts
	at := func(i int) time.Duration { return time.Duration(i) * time.Hour }
	for i := range 2 {
		if v := r.Exited(at(i), Exit{Status: 65}); v.Kind != Restart {
			t.Fatalf("death %d: %+v, want a restart", i, v)
		}
	}
	r.Progressed() // of an asynchronous run, whose next version may be finite
	for i := range 2 {
		if v := r.Exited(at(2+i), Exit{Status: 65}); v.Kind != Restart {
			t.Fatalf("death %d after progress: %+v, want a restart", i, v)
		}
	}
	if v := r.Exited(at(4), Exit{Status: 65}); v.Kind != GiveUp || !strings.Contains(v.Reason, "not finite") {
		t.Errorf("third death in a row: %+v, want the end of the run", v)
	}
}

func TestAProgramThatAlwaysFailsEndsTheRunHoweverLongItTakesToStart(t *testing.T) {
	var r Restarts
	at := func(i int) time.Duration { return time.Duration(i) * time.Minute }
	for i := range 4 {
		if v := r.Exited(at(i), Exit{Status: 70}); v.Kind != Restart {
			t.Fatalf("death %d: %+v, want a restart", i, v)
		}
	}
	r.Progressed()
	for i := range 4 {
		if v := r.Exited(at(4+i), Exit{Status: 70}); v.Kind != Restart {
			t.Fatalf("death %d after progress: %+v, want a restart", i, v)
		}
	}
	if v := r.Exited(at(8), Exit{Status: 70}); v.Kind != GiveUp || !strings.Contains(v.Reason, "a program that failed") {
		t.Errorf("fifth death in a row: %+v, want the end of the run", v)
	}
}

func TestProgressBetweenDeathsKeepsTheRunAlive(t *testing.T) {
	var r Restarts
	for i := range 50 {
		if i%4 == 3 {
			r.Progressed()
		}
		if v := r.Exited(time.Duration(i)*100*time.Millisecond, Exit{Status: 1}); v.Kind != Restart {
			t.Fatalf("death %d: %+v, want a restart", i, v)
		}
	}
}

func TestStatusesTellTheLauncherWhatToDo(t *testing.T) {
	tests := []struct {
		exit Exit
		want VerdictKind
	}{
		{Exit{Status: 0}, Finished},
		{Exit{Status: 1}, Restart},
		{Exit{Status: 2}, Restart},
		{Exit{Status: 65}, Restart},
		{Exit{Status: 75}, Restart},
		{Exit{Status: 78}, GiveUp},
		{Exit{Status: -1, Signal: "killed"}, Restart},
	}
	for _, tt := range tests {
		var r Restarts
		if v := r.Exited(time.Second, tt.exit); v.Kind != tt.want {
			t.Errorf("%s: got %+v, want kind %d", tt.exit, v, tt.want)
		}
	}
}

func TestAnExitIsSaidInWords(t *testing.T) {
	for _, c := range []struct {
		exit Exit
		want string
	}{
		{Exit{Status: -1, Signal: "killed"}, "signal: killed, as the system does when memory is short"},
		{Exit{Status: -1, Signal: "killed", Injected: true}, "killed by a fault"},
		{Exit{Status: -1, Signal: "segmentation fault"}, "signal: segmentation fault"},
		{Exit{Status: 1, Words: "no space left on device"}, "exit status 1: no space left on device"},
		{Exit{Status: exitPreempted, Words: "the machine goes"}, "left after a notice (exit status 75)"},
	} {
		if got := c.exit.String(); got != c.want {
			t.Errorf("%+v is %q, want %q", c.exit, got, c.want)
		}
	}
}
