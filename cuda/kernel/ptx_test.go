//go:build gpu && cgo && linux

package kernel_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/nvrtc"
	"github.com/kintsugi-ml/kintsugi/cuda/kernel"
)

// The committed PTX is what the compiler makes from the sources, byte for byte. KINTSUGI_NVRTC
// names the compiler's library.
func TestThePTXCanBeMadeAgain(t *testing.T) {
	c, err := nvrtc.Open(os.Getenv("KINTSUGI_NVRTC"))
	if err != nil {
		t.Skipf("the compiler of kernels is not here, so only the hashes of the sources are compared: %v", err)
	}
	m, err := kernel.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	if have := "NVRTC " + c.Version(); have != m.Compiler {
		t.Skipf("the PTX was made by %s; here is %s, which may make another", m.Compiler, have)
	}
	for _, name := range kernel.Families() {
		text, headers, err := kernel.Source(name)
		if err != nil {
			t.Fatal(err)
		}
		made, err := c.Compile(name+".cu", text, headers, kernel.Flags)
		if err != nil {
			t.Error(err)
			continue
		}
		image, err := kernel.Image(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(kernel.ForDrivers(made), image[:len(image)-1]) {
			t.Errorf("%s.ptx differs from what the compiler makes: run make ptx", name)
		}
	}
}
