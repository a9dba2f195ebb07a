package blas

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	gonumblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Implementation is a BLAS, and knows what it is called: String gives the library, its version and its
// number of threads, such as "OpenBLAS 0.3.21, 1 thread".
//
// All methods are safe for concurrent use. Like gonum's they panic on dimensions that do not fit their
// slices, because that is a mistake in the program and not a condition of the world.
type Implementation interface {
	gonumblas.Float32
	gonumblas.Float64
	gonumblas.Complex64
	gonumblas.Complex128
	fmt.Stringer
}

// Names lists what Open knows.
func Names() []string { return []string{"auto", "mkl", "openblas", "builtin", "gonum"} }

// errNotFound means that the machine has no such library; "auto" goes on to the next.
var errNotFound = errors.New("not found")

// Open returns the BLAS called name with the given number of threads: "mkl", "openblas", "builtin" (in plain Go
// where the processor or the binary has no SIMD), "gonum", or "auto", the first of MKL, OpenBLAS and builtin
// that the machine has, but for an OpenBLAS that does not know the processor. Fewer than 1 thread means 1:
// several workers on one host are faster with one thread each than with threads that compete.
//
// The number of threads is a setting of the loaded library and so of the whole process: the last Open
// of a library counts. A name that is unknown, or a library that is named and not installed, is a
// kintsugi.ErrUsage that says what to do.
func Open(name string, threads int) (Implementation, error) {
	threads = max(1, threads)
	switch name {
	case "gonum":
		return openGonum(threads), nil
	case "builtin":
		return openBuiltin(threads), nil
	case "openblas", "mkl":
		impl, err := openLibrary(libraries[name], threads)
		if err != nil {
			return nil, fmt.Errorf("open BLAS %s: %w", name, err)
		}
		return impl, nil
	case "auto":
		for _, name := range []string{"mkl", "openblas"} {
			impl, err := openLibrary(libraries[name], threads)
			if err == nil && outdated(impl.String()) {
				continue
			}
			if err == nil {
				return impl, nil
			}
			if !errors.Is(err, errNotFound) {
				// Installed and broken: training still works, but silently losing a factor of
				// five is worse than a line that says why.
				return nil, fmt.Errorf("open BLAS %s: %w (name builtin to go without it)", name, err)
			}
		}
		if impl := openBuiltin(threads); impl.level != plainGo || runtime.GOARCH != "amd64" {
			return impl, nil
		}
		return openGonum(threads), nil // an amd64 without AVX2: gonum has assembly for it
	default:
		return nil, fmt.Errorf("%w: no BLAS is called %q; know %s", kintsugi.ErrUsage, name, strings.Join(Names(), ", "))
	}
}

// outdated reports whether a library runs kernels for processors without FMA, by its name, on a machine that has it. An
// OpenBLAS that is older than the processor does that, at a quarter of builtin's rate; OPENBLAS_CORETYPE=SkylakeX
// (or Haswell) in the environment tells it better.
func outdated(name string) bool {
	if len(builtinLevels()) == 1 {
		return false
	}
	for _, core := range []string{"Prescott", "Core2", "Penryn", "Nehalem", "Atom", "Sandybridge", "Barcelona", "Bobcat"} {
		if strings.Contains(name, "("+core+")") {
			return true
		}
	}
	return false
}

// library says how to find one.
type library struct {
	kind    int
	files   []string // tried in order with the loader's search path
	install string
}

const (
	kindOpenBLAS = iota + 1
	kindMKL
)

var libraries = map[string]library{
	"openblas": {
		kind:    kindOpenBLAS,
		files:   []string{"libopenblas.so.0", "libopenblas.so"},
		install: "install it (Debian, Ubuntu: apt install libopenblas0-pthread; Fedora: dnf install openblas-threads)",
	},
	"mkl": {
		kind:    kindMKL,
		files:   []string{"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so"},
		install: "install Intel oneMKL (apt install intel-oneapi-mkl, or pip install mkl) and put its lib directory on LD_LIBRARY_PATH",
	},
}

// plural writes a number of threads.
func plural(threads int) string {
	if threads == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", threads)
}

func openGonum(threads int) Implementation {
	if threads == 1 {
		return serial{}
	}
	return parallel{}
}

// parallel is gonum as it comes: it cuts products into blocks of 64 and computes them on GOMAXPROCS
// goroutines. Each block sums in a fixed order, so its bits repeat too, but differ from serial's.
type parallel struct{ gonum.Implementation }

func (parallel) String() string { return "gonum, GOMAXPROCS threads" }
