package race

import "testing"

// Skip skips a test, in a short run under the race detector, that says little about races and is
// many times slower there.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled && testing.Short() {
		t.Skip("it is many times slower under the race detector; run it without -short")
	}
}
