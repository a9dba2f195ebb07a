package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A signal that reaches only the command ends every process group of the trainings that it started,
// and removes what they left in the folder for temporary files.
func TestTrainingsEndWithTheCommandThatHasStartedThem(t *testing.T) {
	notUnderRace(t)
	out := newDir(t)
	for _, c := range []struct {
		name   string
		args   []string
		keeps  string // where results of earlier runs stay
		signal syscall.Signal
		status int
	}{
		{"bench", []string{"bench", "consistency", "--presets", "bsp", "--", "--model", "qp:dimension=100", "--blas", "gonum", "--workers", "1", "--servers", "1",
			"--steps", "1000000"}, "", syscall.SIGINT, exitInterrupted},
		{"reproduce", []string{"reproduce", "failure", "--quick", "--presets", "stateless", "--models", "mlr", "--data", "cover", "--kills", "0", "--updates", "100000", "--out", out},
			filepath.Join(out, "cells"), syscall.SIGTERM, exitTerminated},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.keeps != "" {
				onlyLong(t)
			}
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			p := start(t, c.args...)
			eventually(t, "a worker trains", func() bool { return hasRole(leftOf(t, temp), "worker") })
			groups := groupsOf(t, leftOf(t, temp))
			if len(groups) < 4 {
				t.Fatalf("%d process groups; want those of a training, a coordinator, a server and a worker", len(groups))
			}
			p.signal(c.signal)
			if r := p.wait(); r.status != c.status {
				t.Errorf("exit status %d; want %d:\n%s", r.status, c.status, r.stderr)
			}
			for g := range groups {
				if err := syscall.Kill(-g, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("process group %d lives on: %v", g, err)
				}
			}
			noOrphans(t, temp)
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("%v is left of it: %v", left, err)
			}
			if _, err := os.Stat(c.keeps); c.keeps != "" && err != nil {
				t.Errorf("its results are gone: %v", err)
			}
		})
	}
}

// hasRole reports whether one of the given processes has a role.
func hasRole(processes map[int]string, role string) bool {
	for _, args := range processes {
		if strings.HasPrefix(args, "kintsugi "+role+" ") {
			return true
		}
	}
	return false
}

// groupsOf returns the process groups of the given processes. One that has ended meanwhile has
// none.
func groupsOf(t *testing.T, processes map[int]string) map[int]bool {
	t.Helper()
	groups := map[int]bool{}
	for pid := range processes {
		if g, err := syscall.Getpgid(pid); err == nil {
			groups[g] = true
		}
	}
	return groups
}

// The reader of a run's output may be gone before the run: tee receives the same Ctrl-C.
func TestARunOutlivesWhoeverReadsWhatItSays(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", quadratic(20, "--out", dir)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), beKintsugi+"=1"), write, write
	if err := errors.Join(cmd.Start(), write.Close(), read.Close()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if s := readRun(t, dir).Summary; s.Steps != 20 {
		t.Errorf("it took %d steps of 20", s.Steps)
	}
}
