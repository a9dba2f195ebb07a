package job

import (
	"runtime/debug"
	"testing"
)

func TestABinaryKnowsWhereItIsFrom(t *testing.T) {
	built := func(version, revision string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		if revision != "" {
			info.Settings = []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}}
		}
		return info
	}
	for _, c := range []struct {
		by              string
		release, commit string
		info            *debug.BuildInfo
		want            About
	}{
		{"make", "0.3.0", "abc", built("(devel)", ""), About{"0.3.0", "abc"}},
		{"go install of a version", "", "", built("v0.3.0", ""), About{"0.3.0", "v0.3.0"}},
		{"go build in a clone", "", "", built("v0.3.1-0.20261130031600-c0ffee012345", "c0ffee01234567"), About{"0.3.1-0.20261130031600-c0ffee012345", "c0ffee01234567"}},
		{"go run", "", "", built("(devel)", ""), About{"devel", "unknown"}},
		{"a linker that notes nothing", "", "", nil, About{"devel", "unknown"}},
	} {
		if got := identify(c.release, c.commit, c.info); got != c.want {
			t.Errorf("built by %s it is %+v, want %+v", c.by, got, c.want)
		}
	}
}
