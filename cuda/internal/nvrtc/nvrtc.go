//go:build gpu && cgo && linux

package nvrtc

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

typedef void *program;
typedef struct {
	int (*version)(int *, int *);
	int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
	int (*compile)(program, int, const char *const *);
	int (*ptx_size)(program, size_t *);
	int (*ptx)(program, char *);
	int (*log_size)(program, size_t *);
	int (*log)(program, char *);
	int (*destroy)(program *);
} nvrtc;

static const char *nvrtc_open(const char *path, nvrtc *n) {
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) return dlerror();
	*(void **)&n->version = dlsym(h, "nvrtcVersion");
	*(void **)&n->create = dlsym(h, "nvrtcCreateProgram");
	*(void **)&n->compile = dlsym(h, "nvrtcCompileProgram");
	*(void **)&n->ptx_size = dlsym(h, "nvrtcGetPTXSize");
	*(void **)&n->ptx = dlsym(h, "nvrtcGetPTX");
	*(void **)&n->log_size = dlsym(h, "nvrtcGetProgramLogSize");
	*(void **)&n->log = dlsym(h, "nvrtcGetProgramLog");
	*(void **)&n->destroy = dlsym(h, "nvrtcDestroyProgram");
	return n->version && n->create && n->compile && n->ptx_size && n->ptx && n->log_size && n->log && n->destroy ? 0 : "it lacks functions of NVRTC";
}

static int nvrtc_version(nvrtc *n, int *major, int *minor) { return n->version(major, minor); }

// Compiles and returns the PTX, or 0; the log in any case. Both are freed by the caller.
static char *nvrtc_compile(nvrtc *n, const char *source, const char *name, int headers, const char *const *texts, const char *const *names, int flags, const char *const *flag, size_t *size, char **log) {
	program p;
	char *ptx = 0;
	*log = 0;
	if (n->create(&p, source, name, headers, texts, names)) return 0;
	int failed = n->compile(p, flags, flag);
	size_t len = 0;
	if (!n->log_size(p, &len) && len > 0 && (*log = calloc(len + 1, 1))) n->log(p, *log);
	if (!failed && !n->ptx_size(p, size) && (ptx = malloc(*size))) n->ptx(p, ptx);
	n->destroy(&p);
	return ptx;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

// Compiler is the loaded NVRTC library.
type Compiler struct {
	n *C.nvrtc
}

// Open loads the library; "" means libnvrtc.so.12.
func Open(path string) (*Compiler, error) {
	if path == "" {
		path = "libnvrtc.so.12"
	}
	c := &Compiler{n: (*C.nvrtc)(C.calloc(1, C.sizeof_nvrtc))}
	s := C.CString(path)
	defer C.free(unsafe.Pointer(s))
	runtime.LockOSThread() // the error message belongs to the thread
	defer runtime.UnlockOSThread()
	if problem := C.nvrtc_open(s, c.n); problem != nil {
		C.free(unsafe.Pointer(c.n))
		return nil, fmt.Errorf("no NVRTC: %s", C.GoString(problem))
	}
	return c, nil
}

// Version returns the compiler's version, such as "12.8".
func (c *Compiler) Version() string {
	var major, minor C.int
	C.nvrtc_version(c.n, &major, &minor)
	return fmt.Sprintf("%d.%d", major, minor)
}

// Compile compiles a source and returns its PTX. The source may include the headers by their names.
// A warning of the compiler is an error too; errors hold the compiler's messages.
func (c *Compiler) Compile(name, source string, headers map[string]string, flags []string) ([]byte, error) {
	var strings_ []unsafe.Pointer
	defer func() {
		for _, p := range strings_ {
			C.free(p)
		}
	}()
	str := func(s string) *C.char {
		p := C.CString(s)
		strings_ = append(strings_, unsafe.Pointer(p))
		return p
	}
	array := func(s []string) **C.char {
		p := (**C.char)(C.calloc(C.size_t(len(s)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
		strings_ = append(strings_, unsafe.Pointer(p))
		for i, x := range s {
			unsafe.Slice(p, len(s))[i] = str(x)
		}
		return p
	}
	var names, texts []string
	for n := range headers {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		texts = append(texts, headers[n])
	}
	var size C.size_t
	var log *C.char
	ptx := C.nvrtc_compile(c.n, str(source), str(name), C.int(len(names)), array(texts), array(names), C.int(len(flags)), array(flags), &size, &log)
	defer C.free(unsafe.Pointer(ptx))
	defer C.free(unsafe.Pointer(log))
	if said := strings.TrimSpace(C.GoString(log)); ptx == nil || said != "" {
		return nil, fmt.Errorf("compile %s: %s", name, said)
	}
	return C.GoBytes(unsafe.Pointer(ptx), C.int(size)-1), nil // without the zero at the end
}
