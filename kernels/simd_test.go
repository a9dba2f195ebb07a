//go:build cgo && amd64 && !windows

package kernels_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A fused multiply-add rounds once where the contract rounds twice. Compilers insert them unasked,
// and whether a test of values notices depends on the values. So this test looks at the machine
// code.
func TestNothingIsContracted(t *testing.T) {
	for _, tool := range []string{"go", "objdump"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("cannot disassemble: %v", err)
		}
	}
	archive := filepath.Join(t.TempDir(), "kernels.a")
	if out, err := exec.Command("go", "build", "-o", archive, ".").CombinedOutput(); err != nil {
		t.Skipf("cannot build the package again: %v: %s", err, out)
	}
	code, err := exec.Command("objdump", "-d", "--no-show-raw-insn", archive).Output()
	if len(code) == 0 {
		t.Skipf("objdump shows nothing: %v", err)
	}
	fused := regexp.MustCompile(`\svfn?m(add|sub)[a-z0-9]*\s`)
	scalar := regexp.MustCompile(`\sv?(sqrtss|divss|sqrtsd|divsd)\s`)
	in := ""
	for line := range strings.Lines(string(code)) {
		if strings.HasSuffix(line, ">:\n") {
			in = strings.TrimSpace(line)
		}
		if fused.MatchString(line) {
			t.Errorf("%s is contracted: %s", in, strings.TrimSpace(line))
		}
		if scalar.MatchString(line) && !strings.Contains(in, "_to_int") { // that divides twice for 256 values
			t.Errorf("%s has a scalar operation: %s", in, strings.TrimSpace(line))
		}
	}
	// The code must also use vectors throughout: a scalar root or division would make Adam several
	// times slower.
	for _, want := range []string{`vsqrtps .*%zmm`, `vsqrtps .*%ymm`, `vdivps .*%zmm`, `vdivps .*%ymm`, `<kin_avx512_run>:`, `<kin_avx2_run>:`} {
		if !regexp.MustCompile(want).Match(code) {
			t.Errorf("the machine code has no %s", want)
		}
	}
}
