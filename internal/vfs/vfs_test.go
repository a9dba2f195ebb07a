package vfs

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"syscall"
	"testing"
)

// everywhere runs a test on all implementations: the file system in memory must behave like the
// disk.
func everywhere(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS{}, path.Join(t.TempDir(), "a", "b")) })
	t.Run("mem", func(t *testing.T) { test(t, NewMem(), "a/b") })
	t.Run("injector", func(t *testing.T) {
		test(t, NewInjector(NewMem(), func(Op) Fault { return Fault{} }), "/a/b")
	})
}

func write(t *testing.T, fsys FS, name, content string) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte(content)); n != len(content) || err != nil {
		t.Fatalf("write %s: %d bytes, error %v", name, n, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	info, err := fsys.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, info.Size)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && err != io.EOF {
		t.Fatalf("read %s: %d bytes, error %v", name, n, err)
	}
	return string(b)
}

func TestNamesBehaveTheSameEverywhere(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys FS, dir string) {
		x, y, z := path.Join(dir, "x"), path.Join(dir, "y"), path.Join(dir, "z")
		if _, err := fsys.List(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("list of a missing directory: error %v", err)
		}
		for range 2 {
			if err := fsys.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := fsys.Stat(dir); err != nil || !info.Directory {
			t.Errorf("directory: %+v, error %v", info, err)
		}
		write(t, fsys, y, "first")
		write(t, fsys, x, "second")
		if _, err := fsys.Create(x); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create over a file: error %v", err)
		}
		if err := fsys.Link(x, y); !errors.Is(err, fs.ErrExist) {
			t.Errorf("link over a file: error %v", err)
		}
		if err := fsys.Link(x, z); err != nil || read(t, fsys, z) != "second" {
			t.Errorf("link: error %v", err)
		}
		if err := fsys.Rename(x, y); err != nil || read(t, fsys, y) != "second" {
			t.Errorf("rename over a file: error %v", err)
		}
		if names, err := fsys.List(dir); err != nil || !slices.Equal(names, []string{"y", "z"}) {
			t.Errorf("list: %v, error %v", names, err)
		}
		if names, err := fsys.List(path.Dir(dir)); err != nil || !slices.Equal(names, []string{"b"}) {
			t.Errorf("list of the parent: %v, error %v", names, err)
		}
		if err := errors.Join(fsys.Remove(y), fsys.SyncDir(dir)); err != nil || read(t, fsys, z) != "second" {
			t.Errorf("remove of another name of the file: error %v", err)
		}
		_, openErr := fsys.Open(x)
		_, appendErr := fsys.OpenAppend(x)
		_, statErr := fsys.Stat(x)
		_, createErr := fsys.Create(path.Join(dir, "none", "x"))
		for what, err := range map[string]error{
			"open": openErr, "append": appendErr, "stat": statErr, "create": createErr,
			"remove": fsys.Remove(x), "rename": fsys.Rename(x, y), "link": fsys.Link(x, y),
			"sync": fsys.SyncDir(path.Join(dir, "none")),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of what is missing: error %v", what, err)
			}
		}
		if err := fsys.MkdirAll(path.Join(z, "below")); err == nil {
			t.Error("a directory below a file was created")
		}
	})
}

func TestWritesAppendAndReadsEndWithEOF(t *testing.T) {
	everywhere(t, func(t *testing.T, fsys FS, dir string) {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		name := path.Join(dir, "x")
		write(t, fsys, name, "abc")
		f, err := fsys.OpenAppend(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("def")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("write after close: error %v", err)
		}
		if got := read(t, fsys, name); got != "abcdef" {
			t.Errorf("content %q", got)
		}
		r, err := fsys.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := r.Write([]byte("x")); err == nil {
			t.Error("a file opened for reading was written")
		}
		b := make([]byte, 4)
		if n, err := r.ReadAt(b, 4); n != 2 || err != io.EOF || string(b[:n]) != "ef" {
			t.Errorf("read across the end: %d bytes, error %v", n, err)
		}
		if n, err := r.ReadAt(b, 9); n != 0 || err != io.EOF {
			t.Errorf("read behind the end: %d bytes, error %v", n, err)
		}
	})
}

func TestCrashKeepsWhatWasSyncedAndNothingElseForSure(t *testing.T) {
	sawLost, sawKept, sawTorn := false, false, false
	for seed := range uint64(200) {
		m := NewMem()
		if err := m.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		write(t, m, "d/safe", "safe")
		if err := m.SyncDir("d"); err != nil {
			t.Fatal(err)
		}
		f, err := m.OpenAppend("d/safe")
		if err != nil {
			t.Fatal(err)
		}
		tail := make([]byte, 3*sectorBytes)
		for i := range tail {
			tail[i] = 'x'
		}
		if _, err := f.Write(tail); err != nil {
			t.Fatal(err)
		}
		write(t, m, "d/new", "synced, but its name is not")

		disk := m.Crash(rand.New(rand.NewPCG(seed, 0)))
		if _, err := f.Write(tail); !errors.Is(err, ErrCrashed) {
			t.Fatalf("write after the crash: error %v", err)
		}
		if _, err := m.List("d"); !errors.Is(err, ErrCrashed) {
			t.Fatalf("list after the crash: error %v", err)
		}
		got := read(t, disk, "d/safe")
		if got[:4] != "safe" || len(got) > 4+len(tail) {
			t.Fatalf("seed %d: %q is left", seed, got)
		}
		sawTorn = sawTorn || slices.Contains([]byte(got), 0)
		if _, err := disk.Stat("d/new"); err != nil {
			sawLost = true
		} else {
			sawKept = true
			if read(t, disk, "d/new") != "synced, but its name is not" {
				t.Fatalf("seed %d: a synced file has other bytes", seed)
			}
		}
	}
	if !sawLost || !sawKept || !sawTorn {
		t.Errorf("in 200 crashes: a name lost %t, kept %t, a sector torn %t", sawLost, sawKept, sawTorn)
	}
}

func TestStrictestDiskLosesAllThatIsNotSynced(t *testing.T) {
	m := NewMem()
	if err := m.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	write(t, m, "d/a", "a")
	write(t, m, "d/b", "b")
	if err := m.SyncDir("d"); err != nil {
		t.Fatal(err)
	}
	// None of these is synced.
	write(t, m, "d/c", "c")
	if err := errors.Join(m.Remove("d/a"), m.Rename("d/b", "d/e"), m.Link("d/e", "d/f")); err != nil {
		t.Fatal(err)
	}
	if got := m.Crash(nil).Walk("d"); !slices.Equal(got, []string{"d/a", "d/b"}) {
		t.Errorf("left: %v", got)
	}
}

// A rename is one change: a crash never loses both names, and never shows the file under both.
func TestCrashNeverHalvesARename(t *testing.T) {
	for seed := range uint64(50) {
		m := NewMem()
		if err := m.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		write(t, m, "d/tmp", "content")
		if err := m.SyncDir("d"); err != nil {
			t.Fatal(err)
		}
		if err := m.Rename("d/tmp", "d/final"); err != nil {
			t.Fatal(err)
		}
		if got := m.Crash(rand.New(rand.NewPCG(seed, 0))).Walk("."); len(got) != 1 {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

func TestInjectorFailsTheChosenOperation(t *testing.T) {
	m := NewMem()
	i := NewInjector(m, FailAt(1, syscall.ENOSPC))
	f, err := i.Create("x") // operation 0
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte("abcdef")); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write on a full disk: %d bytes, error %v", n, err)
	}
	if got := read(t, m, "x"); got != "abc" {
		t.Errorf("the file holds %q", got)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Errorf("after it: %v", err)
	}
	if got := i.Operations(); got != 4 {
		t.Errorf("%d operations, want create, write, sync, close", got)
	}
}

func TestInjectorCrashesAfterTheChosenOperation(t *testing.T) {
	m := NewMem()
	i := NewInjector(m, CrashAfter(2))
	f, err := i.Create("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	_, statErr := i.Stat("x")
	_, listErr := i.List(".")
	_, openErr := i.Open("x")
	for _, err := range []error{f.Sync(), f.Close(), i.SyncDir("."), i.Remove("x"), i.Link("x", "y"), i.Rename("x", "y"), i.MkdirAll("d"), statErr, listErr, openErr} {
		if !errors.Is(err, ErrCrashed) {
			t.Errorf("after the crash: error %v", err)
		}
	}
	if got := m.Walk("."); !slices.Equal(got, []string{"x"}) {
		t.Errorf("what happened after the crash reached the file system: %v", got)
	}
}

func TestOpSaysWhatItIs(t *testing.T) {
	got := Op{N: 12, Kind: OpWrite, Name: "run/segment/0001", Bytes: 4096}.String()
	if want := "operation 12: write run/segment/0001, 4096 bytes"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
