// Package emulate builds an emulation of the CUDA driver, which runs the kernels on a processor,
// and of cuBLAS. It is for tests, which begin with [Library]. It adds the flags -real, -ptx and
// -must to them. A test built with -asan gets an emulation with AddressSanitizer.
package emulate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var (
	real = flag.Bool("real", false, "use the driver of this machine, and its GPU, in place of the emulation")
	ptx  = flag.Bool("ptx", false, "let the emulation run the PTX of kernels in place of their sources")
	must = flag.Bool("must", false, "fail where something is missing, rather than skip")

	// How EveryWaitIsNeeded runs tests.
	unwaited = flag.Int("unwaited", -1, "how many times the emulation's streams are told to wait for an event before one does not wait once; 0: say who waits for whom")
)

// Variables of the environment that the emulation reads.
const (
	// Schedule is the order in which threads run; see kernel/emu/emu.h.
	Schedule = "KINTSUGI_EMU_SCHEDULE"

	// Fail is a driver's error code: every call that waits returns it from now on.
	Fail = "KINTSUGI_EMU_FAIL"

	// Hang is the path of a file: the first process that waits for the device removes it, and waits
	// for ever.
	Hang = "KINTSUGI_EMU_HANG"

	// Allocations is the number of further arrays and pieces of pinned memory that can be
	// allocated.
	Allocations = "KINTSUGI_EMU_ALLOCATIONS"

	// Devices, Version and Major are what the emulated driver reports about itself.
	Devices = "KINTSUGI_EMU_DEVICES"
	Version = "KINTSUGI_EMU_VERSION"
	Major   = "KINTSUGI_EMU_MAJOR"

	// Old is the number of a device that is too old for the kernels.
	Old = "KINTSUGI_EMU_OLD"

	// Exclusive is set if another process has exclusive use of the device.
	Exclusive = "KINTSUGI_EMU_EXCLUSIVE"

	// Kernels says what a launch runs. "ptx": the PTX that the program has loaded. Otherwise: the
	// sources, compiled for the processor.
	Kernels = "KINTSUGI_EMU_KERNELS"

	// Unwaited is n if the n-th wait of a stream for an event is left out. "0": no wait is left
	// out, and each is reported with the works that it orders.
	Unwaited = "KINTSUGI_EMU_UNWAITED"

	// Without is a barrier that is left out of the PTX: "step_adam:0" is the first one of kernel
	// step_adam.
	Without = "KINTSUGI_EMU_WITHOUT"

	// CuBLAS changes the emulated cuBLAS. "none": it does not initialise. "uncaptured": it cannot
	// be part of a program.
	CuBLAS = "KINTSUGI_EMU_CUBLAS"
)

// Edit is a mistake that is put into a kernel: in a file of cuda/kernel, the text Old, which must
// occur there, is replaced by New.
type Edit struct{ File, Old, New string }

// OnGPU reports whether the test runs on the machine's GPU, where nothing takes long.
func OnGPU() bool { return *real }

// OnPTX reports whether the emulation runs PTX. It then watches each access, which must be within
// its array.
func OnPTX() bool { return *ptx && !*real }

// Calm runs f with every wait in place. Tests compute what they expect in it, while
// EveryWaitIsNeeded leaves waits out.
func Calm(t testing.TB, f func()) {
	t.Helper()
	given := *unwaited
	*unwaited = -1
	t.Setenv(Unwaited, "")
	f()
	*unwaited = given
}

// Fresh returns a copy of the emulation, for a test that makes the driver fail: a fault stays with
// its driver.
func Fresh(t testing.TB) string {
	t.Helper()
	if *real {
		t.Skip("only the emulation can be made to fail; run it without -real")
	}
	b, err := os.ReadFile(Library(t))
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(t.TempDir(), "libcuda.so")
	if err := os.WriteFile(library, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return library
}

// Library returns the path of a driver for the test, which is also that of a cuBLAS. With the flag
// -real it returns "", which means the machine's own. Otherwise it builds the emulation. If it
// cannot, the test is skipped, or fails with the flag -must.
func Library(t testing.TB, edits ...Edit) string {
	t.Helper()
	if *ptx {
		t.Setenv(Kernels, "ptx")
	}
	if *unwaited >= 0 {
		t.Setenv(Unwaited, strconv.Itoa(*unwaited))
	}
	if *real {
		if len(edits) > 0 {
			t.Skip("the kernels of a GPU cannot be edited")
		}
		return ""
	}
	if *ptx && len(edits) > 0 {
		t.Skip("it edits the sources of kernels, which do not run; run it without -ptx")
	}
	path, err := build(edits)
	switch {
	case errors.Is(err, exec.ErrNotFound) && !*must:
		t.Skipf("the kernels are emulated with a C++ compiler, and there is none: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return path
}

// build compiles the emulation, or finds the result of an earlier build of the same text. It
// returns its path.
func build(edits []Edit) (string, error) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		return "", err
	}
	// Without contraction, since kernels say what is fused.
	flags := []string{"-std=c++17", "-O1", "-ffp-contract=off", "-g1", "-DKINTSUGI_EMU", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-Wno-parentheses", "-fPIC", "-fvisibility=hidden"}
	if Sanitized {
		flags = append(flags, "-fsanitize=address")
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	files, err := sources(filepath.Join(root, "cuda"), edits)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, compiler, flags)
	for _, f := range files {
		fmt.Fprintln(hash, f.name, len(f.text), f.text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	path := filepath.Join(cache, "kintsugi", "emulation-"+hex.EncodeToString(hash.Sum(nil)[:12])+".so")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if _, failed := failures.Load(path); failed {
		return "", errors.New("compile the emulation: an earlier test could not, and says why")
	}
	if err := compile(compiler, flags, files, path); err != nil {
		failures.Store(path, true)
		return "", err
	}
	return path, nil
}

// failures has the path of each text that could not be compiled: trying takes seconds, and every
// test of a package would.
var failures sync.Map

type source struct{ name, text string }

// sources reads the kernels, the emulation and the driver's interface, with names relative to the
// folder cuda.
func sources(folder string, edits []Edit) ([]source, error) {
	var files []source
	for _, pattern := range []string{"kernel/*.cu", "kernel/*.cuh", "kernel/emu/*", "internal/driver/*.h"} {
		paths, err := filepath.Glob(filepath.Join(folder, filepath.FromSlash(pattern)))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no %s below %s: %w", pattern, folder, os.ErrNotExist)
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(folder, p)
			if err != nil {
				return nil, err
			}
			files = append(files, source{filepath.ToSlash(name), string(b)})
		}
	}
	for _, e := range edits {
		if err := e.apply(files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (e Edit) apply(files []source) error {
	for i := range files {
		if files[i].name == "kernel/"+e.File {
			if strings.Count(files[i].text, e.Old) != 1 {
				return fmt.Errorf("%q is %d times in %s; a mistake is put in one place", e.Old, strings.Count(files[i].text, e.Old), e.File)
			}
			files[i].text = strings.Replace(files[i].text, e.Old, e.New, 1)
			return nil
		}
	}
	return fmt.Errorf("no kernels in %s", e.File)
}

// compile writes the files to a temporary folder and compiles them to path.
func compile(compiler string, flags []string, files []source, path string) error {
	folder, err := os.MkdirTemp("", "kintsugi-emulation")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var units sync.WaitGroup
	problems := make([]error, len(files))
	for _, f := range files {
		at := filepath.Join(folder, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	for i, f := range files {
		if !strings.HasSuffix(f.name, ".cc") {
			continue
		}
		unit := append(slices.Clone(flags), "-c", "-I", filepath.Join(folder, "kernel"), filepath.Join(folder, filepath.FromSlash(f.name)))
		if strings.Contains(f.name, "/ptx_") { // the interpreter; with a pragma for -O2, it would call what headers have inline
			unit = append(unit, "-O2")
		}
		if strings.HasSuffix(f.name, "/kernels.cc") { // without the flag at linking, which would require libubsan: emu.cc has the one function that is called
			unit = append(unit, "-fsanitize=alignment")
		}
		units.Go(func() { problems[i] = call(folder, compiler, unit) })
	}
	units.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	objects, err := filepath.Glob(filepath.Join(folder, "*.o"))
	if err != nil {
		return err
	}
	made := filepath.Join(folder, "libcuda.so")
	if err := call(folder, compiler, append(append(slices.Clone(flags), "-shared", "-o", made), objects...)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Tests of several packages may build at once, so each moves a complete file to path.
	b, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "emulation")
	if err != nil {
		return err
	}
	_, err = temporary.Write(b)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// call runs the compiler in a folder.
func call(folder, compiler string, args []string) error {
	c := exec.Command(compiler, args...)
	c.Dir = folder
	if b, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the emulation: %w: %s", err, b)
	}
	return nil
}

// moduleRoot returns the folder of go.mod at or above the working folder, which in a test is the
// package's folder.
func moduleRoot() (string, error) {
	folder, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("no go.mod above the working folder: %w", os.ErrNotExist)
		}
		folder = filepath.Dir(folder)
	}
	return "", err
}
