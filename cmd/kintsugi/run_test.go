package main

import (
	"strings"
	"testing"
)

func TestAWarningOfARunIsShownWhereOnlyWarningsAre(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	r := kin(t, quadratic(20, "--log-level", "warn", "--fault", "kill server/0 at 100s", "--out", newDir(t))...)
	if r.status != exitDone || !strings.Contains(r.stderr, `"level":"WARN","msg":"the run was over before`) {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
}
