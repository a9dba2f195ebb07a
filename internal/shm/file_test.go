package shm

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const beWriter = "KINTSUGI_SHM_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(beWriter); path != "" {
		writeForEver(path)
	}
	os.Exit(m.Run())
}

// writeForEver writes one version after the other and reports each, until it is killed.
func writeForEver(path string) {
	h := someHeader()
	f, err := OpenFile(path)
	if err == nil {
		err = f.Resize(h.Bytes())
	}
	if err != nil {
		panic(err)
	}
	m := Format(f.Bytes(), h)
	out := bufio.NewWriter(os.Stdout)
	for step := uint64(1); ; step++ {
		arrays, record := content(h, step, 1)
		for i, to := range m.Begin(step-1, bank(step, 1)) {
			copy(to, arrays[i])
		}
		if err := m.End(step, 1, record); err != nil {
			panic(err)
		}
		if step%50 == 0 {
			_, _ = out.WriteString("on\n")
			_ = out.Flush()
		}
	}
}

// A process that is killed while it writes leaves a whole version and no lock.
func TestAKilledProcessLeavesAWholeVersion(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "state")
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), beWriter+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skipf("cannot start a process: %v", err)
		}
		_, err = bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFile(path); !errors.Is(err, syscall.EWOULDBLOCK) || !strings.Contains(err.Error(), "earlier life") {
			t.Errorf("a file that another process has: %v", err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h := someHeader()
		_, versions, err := Open(f.Bytes(), h)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			if !whole(h, v) {
				t.Errorf("step %d is torn", v.Step)
			}
		}
		if newest := versions[len(versions)-1].Step; newest < 49 {
			t.Errorf("the newest step is %d", newest)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileThatHasNoRoomIsAnError(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Resize(1 << 60); err == nil {
		t.Error("2⁶⁰ bytes were there")
	}
	if err := f.Resize(1 << 13); err != nil || len(f.Bytes()) != 1<<13 {
		t.Errorf("after that: %d bytes, %v", len(f.Bytes()), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A file that grows keeps what it holds, and slices of it can still be read and written.
func TestSlicesOfAFileOutliveItsGrowth(t *testing.T) {
	f, err := Unnamed(t.TempDir())
	if err == nil {
		err = f.Grow(1 << 13)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := f.Bytes()
	before[1<<12] = 1
	for _, n := range []int{1 << 12, 1 << 20} {
		if err := f.Grow(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Reserve(1<<13, 1<<14); err != nil {
		t.Error(err)
	}
	before[1<<12+1] = 2
	if b := f.Bytes(); len(b) != 1<<20 || b[1<<12] != 1 || b[1<<12+1] != 2 {
		t.Errorf("%d bytes, of which two are %d and %d", len(b), b[1<<12], b[1<<12+1])
	}
	if err := f.Empty(); err != nil || len(f.Bytes()) != 0 {
		t.Errorf("%d bytes are left, %v", len(f.Bytes()), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheBootOfTheMachineHasAName(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Skip(err)
	}
	if first := Boot(); first == [16]byte{} || Boot() != first {
		t.Errorf("%x", first)
	}
}
