//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func segment(t *testing.T, n int) (*Segment, string) {
	t.Helper()
	s, name, closeName, err := CreateSegment(n, Writable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeName)
	return s, name
}

func TestBothSidesSeeOneMemory(t *testing.T) {
	mine, name := segment(t, 10000)
	theirs, err := OpenSegment(name, 10000, Writable)
	if err != nil {
		t.Fatal(err)
	}
	if len(mine.Bytes()) != SegmentHeader+10000 || len(theirs.Bytes()) != len(mine.Bytes()) {
		t.Fatalf("%d and %d bytes, want %d", len(mine.Bytes()), len(theirs.Bytes()), SegmentHeader+10000)
	}
	copy(mine.Bytes()[SegmentHeader:], "from here")
	copy(theirs.Bytes()[len(theirs.Bytes())-5:], "there")
	if !bytes.HasPrefix(theirs.Bytes()[SegmentHeader:], []byte("from here")) || !bytes.HasSuffix(mine.Bytes(), []byte("there")) {
		t.Error("what one side writes the other does not read")
	}
}

// Memory that is lent for reading cannot be written by others, even if they ask for it.
func TestOthersCannotWriteMemoryThatIsLentToBeRead(t *testing.T) {
	mine, name, closeName, err := CreateSegment(10000, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer closeName()
	theirs, err := OpenSegment(name, 10000, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	copy(mine.Bytes()[SegmentHeader:], "from here")
	if !bytes.HasPrefix(theirs.Bytes()[SegmentHeader:], []byte("from here")) {
		t.Error("what one side writes the other does not read")
	}
	var system unix.Utsname
	var major, minor int
	if err := unix.Uname(&system); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(system.Release[:]), "%d.%d", &major, &minor); err != nil || major < 5 || major == 5 && minor < 1 {
		t.Skipf("Linux %s cannot keep others from writing; 5.1 can", unix.ByteSliceToString(system.Release[:]))
	}
	if _, err := OpenSegment(name, 10000, Writable); !errors.Is(err, ErrNoSegment) {
		t.Errorf("it is opened to be written: %v", err)
	}
	if err := unix.Mprotect(theirs.Bytes(), unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("who has opened it can make it writable")
	}
}

// A name comes from another process, maybe of another host, and is not trusted.
func TestNamesThatDoNotLeadToTheMemoryTheyPromiseAreRefused(t *testing.T) {
	_, name := segment(t, 10000)
	parts := strings.Split(name, ".")
	with := func(i int, text string) string {
		p := append([]string(nil), parts...)
		p[i] = text
		return strings.Join(p, ".")
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := file.Truncate(SegmentHeader + 10000); err != nil {
		t.Fatal(err)
	}
	loose, err := unix.MemfdCreate(memfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(loose) }()
	if err := unix.Ftruncate(loose, SegmentHeader+10000); err != nil {
		t.Fatal(err)
	}
	gone, goneName, closeName, err := CreateSegment(10000, Writable)
	if err != nil {
		t.Fatal(err)
	}
	closeName()
	for what, c := range map[string]struct {
		name string
		most int
	}{
		"nothing":              {"", 1 << 20},
		"words":                {"a.b.c.d", 1 << 20},
		"a negative number":    {with(1, "-1"), 1 << 20},
		"a number too many":    {name + ".1", 1 << 20},
		"another nonce":        {with(3, strings.Repeat("00", nonceBytes)), 1 << 20},
		"half a nonce":         {with(3, "00"), 1 << 20},
		"another size":         {with(2, fmt.Sprint(SegmentHeader+20000)), 1 << 20},
		"no room":              {with(2, fmt.Sprint(SegmentHeader)), 1 << 20},
		"more than is allowed": {name, 9999},
		"no such process":      {with(0, "999999999"), 1 << 20},
		"no such descriptor":   {with(1, "999999"), 1 << 20},
		"standard input":       {with(1, "0"), 1 << 20},
		"a file":               {with(1, fmt.Sprint(file.Fd())), 1 << 20},
		"memory without seals": {with(1, fmt.Sprint(loose)), 1 << 20},
		"a closed name":        {goneName, 1 << 20},
	} {
		if _, err := OpenSegment(c.name, c.most, Writable); !errors.Is(err, ErrNoSegment) {
			t.Errorf("%s: %q: got %v, want %v", what, c.name, err, ErrNoSegment)
		}
	}
	runtime.KeepAlive(gone)
}

// A process that is killed leaves no file, and no memory once the other side has let it go.
func TestTheMemoryOfAKilledProcessStaysUntilItIsLetGo(t *testing.T) {
	if os.Getenv("SEGMENT_CHILD") != "" {
		s, name, _, err := CreateSegment(1<<20, Writable)
		if err != nil {
			fmt.Println(err)
			return
		}
		copy(s.Bytes()[SegmentHeader:], "left behind")
		fmt.Println(name)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	}
	before := mappings(t)
	for range 10 {
		child := exec.Command(os.Args[0], "-test.run", "^TestTheMemoryOfAKilledProcess")
		child.Env = append(os.Environ(), "SEGMENT_CHILD=1")
		if _, err := child.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var name string
		if _, err := fmt.Fscan(out, &name); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSegment(name, 1<<20, Writable)
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		if _, err := OpenSegment(name, 1<<20, Writable); !errors.Is(err, ErrNoSegment) {
			t.Errorf("the segment of a killed process opens: %v", err)
		}
		if !bytes.HasPrefix(s.Bytes()[SegmentHeader:], []byte("left behind")) {
			t.Error("the bytes of a killed process are gone while they are held")
		}
		runtime.KeepAlive(s)
	}
	for range 100 { // cleanups run some time after the collection that found them
		if runtime.GC(); mappings(t) <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d segments are mapped, %d were before", mappings(t), before)
}

func mappings(t *testing.T) int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skipf("no list of mappings: %v", err)
	}
	return strings.Count(string(maps), memfdName)
}

// FuzzNames: a name from another process may be anything. If it does not lead to a segment, the
// error is ErrNoSegment.
func FuzzNames(f *testing.F) {
	f.Add("1.2.4097.00000000000000000000000000000000")
	f.Add(fmt.Sprintf("%x.1.2.3.4.5", Boot()))
	f.Fuzz(func(t *testing.T, name string) {
		if _, err := OpenSegment(name, 1<<20, ReadOnly); !errors.Is(err, ErrNoSegment) {
			t.Errorf("a segment: %v", err)
		}
		if p, err := OpenPipes(name); !errors.Is(err, ErrNoSegment) {
			t.Errorf("pipes: %v", err)
			p.Close()
		}
	})
}
