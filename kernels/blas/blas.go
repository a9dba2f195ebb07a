package blas

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	gonumblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels/blas/internal/vector"
)

// Implementation is a BLAS. Its String gives the library, its version and its number of threads,
// such as "OpenBLAS 0.3.21, 1 thread".
//
// All methods are safe for concurrent use. They panic on dimensions that do not fit their slices,
// as gonum's do: that is a mistake of the program.
type Implementation interface {
	gonumblas.Float32
	gonumblas.Float64
	gonumblas.Complex64
	gonumblas.Complex128
	fmt.Stringer
}

// Names returns the names that Open accepts.
func Names() []string { return []string{"auto", "mkl", "openblas", "builtin", "gonum"} }

// errNotFound means that the machine does not have the library; "auto" then tries the next one.
var errNotFound = errors.New("not found")

// Open returns the BLAS called name with the given number of threads. The names are "mkl",
// "openblas", "builtin", "gonum" and "auto". "builtin" computes in plain Go if the processor or the
// binary has no SIMD. "auto" is the first of MKL, OpenBLAS and builtin that the machine has, except
// that it skips an OpenBLAS that does not know the processor; on an amd64 without AVX2 it falls
// back to gonum. Fewer than 1 thread means 1: several workers on one host are faster with one
// thread each than with threads that compete.
//
// The number of threads is a setting of the loaded library and so of the whole process: the last
// Open of a library counts. Open returns a kintsugi.ErrUsage that says what to do if the name is
// unknown, or if the named library is not installed.
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
			if err == nil && outdated(impl.String(), builtinLevels()) {
				continue
			}
			if err == nil {
				return impl, nil
			}
			if !errors.Is(err, errNotFound) {
				// The library is installed and broken. Training would still work, but a silent loss
				// of a factor of five is worse than a message that says why.
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

// What OpenBLAS calls its kernels, by the processors that they are for: those that have no FMA, and
// those that have it but no AVX-512.
var (
	coresWithoutFMA    = []string{"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "Sandybridge", "Barcelona", "Bobcat"}
	coresWithoutAVX512 = []string{"Haswell", "Zen", "Excavator", "Steamroller", "Piledriver", "Bulldozer"}
)

// outdated reports, from a library's name, whether the library runs kernels with less than the best
// of levels, which builtin would use. An OpenBLAS that is older than the processor does that: without
// FMA at a quarter of builtin's rate, without AVX-512 at half of it. Setting
// OPENBLAS_CORETYPE=SkylakeX (or Haswell) in the environment corrects it.
func outdated(name string, levels []int) bool {
	runs := func(cores []string) bool {
		return slices.ContainsFunc(cores, func(core string) bool { return strings.Contains(name, "("+core+")") })
	}
	return len(levels) > 1 && runs(coresWithoutFMA) || slices.Contains(levels, vector.AVX512) && runs(coresWithoutAVX512)
}

// library says how to find a library and how to install it.
type library struct {
	kind    int
	files   []string // tried in this order, with the loader's search path
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

// Outdated returns the libraries of this machine that "auto" skips because they do not know the
// processor. It opens each library with one thread, and the last Open of a library counts.
func Outdated() (names []string) {
	for _, l := range libraries {
		if impl, err := openLibrary(l, 1); err == nil && outdated(impl.String(), builtinLevels()) {
			names = append(names, impl.String())
		}
	}
	return names
}

// plural returns a number of threads in words.
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

// parallel is gonum unchanged: it cuts products into blocks of 64 and computes them on GOMAXPROCS
// goroutines. Each block sums in a fixed order, so its bits repeat too, but they differ from
// serial's.
type parallel struct{ gonum.Implementation }

func (parallel) String() string { return "gonum, GOMAXPROCS threads" }
