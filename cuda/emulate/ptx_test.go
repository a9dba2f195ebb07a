//go:build gpu && cgo && linux

package emulate_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// Environment variables of a process that runs a single kernel.
const (
	kernelText    = "KINTSUGI_TEST_KERNEL"
	kernelLibrary = "KINTSUGI_TEST_LIBRARY"
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(kernelText); ok {
		if err := launch(os.Getenv(kernelLibrary), text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// kernelOf returns a kernel of 64 threads whose parameter is an array. %rd1 is the array, %r1 the
// thread, %r2 its block, and %rd2 four times the thread.
func kernelOf(body string) string {
	return `.version 8.7
.target sm_80
.address_size 64
.visible .entry k(
	.param .align 8 .b8 k_param_0[8]
)
.maxntid 64, 1, 1
{
	.shared .align 16 .b8 sh[256];
	ld.param.u64 %rd1, [k_param_0];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mul.wide.u32 %rd2, %r1, 4;
	mov.u64 %rd3, sh;
	add.s64 %rd4, %rd3, %rd2;
	add.s64 %rd5, %rd1, %rd2;
	setp.lt.u32 %p1, %r1, 16;
` + body + `
	ret;
}
`
}

// What a kernel must not do is reported with the line and the thread, and what is allowed is not.
// The array has 256 bytes, and there are two blocks.
func TestWhatAKernelMustNotDoIsSaid(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", ""},
		{"reading what all read", "ld.global.u32 %r3, [%rd1];", ""},
		{"writing what another block writes", "st.global.u32 [%rd5], %r1;", "a race in global memory with a write of another block"},
		{"reading what another block writes", "setp.eq.u32 %p2, %r2, 1;\n@%p2 st.global.u32 [%rd5], %r1;\n@!%p2 ld.global.u32 %r3, [%rd5];", "a race in global memory with a read of another block"},
		{"atomic operations on one value", "atom.global.add.u32 %r3, [%rd1], 1;", ""},
		{"an atomic operation on what others read", "atom.shared.add.u32 %r3, [%rd3], 1;", "a read of shared memory that the block has not written"},
		{"writing its own", "st.shared.u32 [%rd4], %r1;\nld.shared.u32 %r3, [%rd4];", ""},
		{"reading a neighbour's before a barrier", "st.shared.u32 [%rd4], %r1;\nxor.b64 %rd6, %rd4, 4;\nld.shared.u32 %r3, [%rd6];", "a race in shared memory with a write of another thread"},
		{"reading a neighbour's after bar.warp.sync", "st.shared.u32 [%rd4], %r1;\nbar.warp.sync -1;\nxor.b64 %rd6, %rd4, 4;\nld.shared.u32 %r3, [%rd6];", ""},
		{"reading another warp's after bar.warp.sync", "st.shared.u32 [%rd4], %r1;\nbar.warp.sync -1;\nxor.b64 %rd6, %rd4, 128;\nld.shared.u32 %r3, [%rd6];", "a read of shared memory that the block has not written"},
		{"reading another warp's after a barrier", "st.shared.u32 [%rd4], %r1;\nbar.sync 0;\nxor.b64 %rd6, %rd4, 128;\nld.shared.u32 %r3, [%rd6];", ""},
		{"writing what others may still read", "st.shared.u32 [%rd4], %r1;\nbar.sync 0;\nld.shared.u32 %r3, [%rd3];\nst.shared.u32 [%rd4], %r3;", "a race in shared memory with a read of another thread"},
		{"bytes of a word", "shr.u64 %rd6, %rd2, 2;\nadd.s64 %rd6, %rd6, %rd3;\nst.shared.u8 [%rd6], %r1;", ""},
		{"reading past the end", "ld.global.u32 %r3, [%rd5+4];", "an access to no global memory"},
		{"reading before the beginning", "ld.global.u32 %r3, [%rd5+-4];", "an access to no global memory"},
		{"writing past the end of shared memory", "st.shared.u32 [%rd4+16], %r1;", "an access to no shared memory"},
		{"a vector at an odd address", "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1+8];", "an access to 16 bytes at an address that is no multiple of it"},
		{"a barrier that some pass by", "@%p1 bar.sync 0;", "a barrier waits for threads that have left the kernel"},
		{"a shuffle of half a warp", "@%p1 shfl.sync.down.b32 %r3|%p2, %r1, 1, 31, -1;", "an operation of a warp waits for lanes that are elsewhere"},
		{"a shuffle where lanes have met again", "@%p1 bra $L1;\nadd.s32 %r3, %r1, 1;\n$L1:\nshfl.sync.down.b32 %r3|%p2, %r1, 1, 31, -1;", ""},
		{"a shuffle with a mask", "shfl.sync.down.b32 %r3|%p2, %r1, 1, 31, 65535;", "a mask that leaves lanes out"},
		{"an instruction that is not known", "tanh.approx.f32 %f1, %f1;", "line 19: an instruction that is not known: tanh.approx.f32 %f1, %f1"},
		{"a branch to nowhere", "bra $L9;", "no label $L9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fault(t, kernelOf(c.body)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("the emulation says %q; want %q", got, c.want)
			}
		})
	}
}

// fault runs a kernel in its own process, and returns what the emulation reports.
func fault(t *testing.T, text string) string {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), emulate.Kernels+"=ptx", kernelText+"="+text, kernelLibrary+"="+emulate.Library(t))
	out, err := c.CombinedOutput()
	if err == nil {
		return ""
	}
	return err.Error() + ": " + string(out)
}

// launch runs a kernel on the emulation in a library.
func launch(library, text string) error {
	d, err := driver.Open(library, 0)
	if err != nil {
		return err
	}
	m, err := d.Load([]byte(text + "\x00"))
	if err != nil {
		return err
	}
	f, err := d.Function(m, "k")
	if err != nil {
		return err
	}
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	at, err := d.Alloc(256)
	if err != nil {
		return err
	}
	if err := d.Launch(f, [3]int{2, 1, 1}, 64, s, unsafe.Pointer(&at), 8); err != nil {
		return err
	}
	return d.Synchronize(s)
}
