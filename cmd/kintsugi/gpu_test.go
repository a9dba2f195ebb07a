package main

import (
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda"
)

// If a GPU is asked for by name, every command that takes a device says what is missing.
func TestAGPUThatIsMissingIsNamed(t *testing.T) {
	if cuda.Usable("", 0) == nil {
		t.Skip("this machine has a driver; what it lacks is a test of package cuda")
	}
	for _, args := range [][]string{
		{"train", "--model", "mlp", "--device", "cuda"},
		{"train", "--model", "mlp", "--device", "cuda:1,cublas"},
		{"train", "--model", "mlp", "--server-device", "cuda"},
		{"bench", "kernels", "--device", "cuda"},
	} {
		got := start(t, args...).wait()
		flag := args[len(args)-2] + " " + args[len(args)-1]
		if got.status != exitUsage || !strings.Contains(got.stderr, flag+": no GPU can be used: ") {
			t.Errorf("%v ends with %d and says %q; want %d and what %s lacks", args, got.status, got.stderr, exitUsage, flag)
		}
	}
}
