package role

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestACandidateIsGoneIfItsProcessIs(t *testing.T) {
	if numbered() == "" {
		t.Skip("this system does not say which processes are numbered together")
	}
	ended := exec.Command("/proc/self/exe", "-test.run", "^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	dead := fmt.Sprintf("%s/%d %s", host, ended.Process.Pid, numbered())
	if !gone(dead) {
		t.Errorf("%s has ended, and is not gone", dead)
	}
	who, where, _ := strings.Cut(dead, " ")
	for what, name := range map[string]string{
		"this process":                   candidate(),
		"a process of another machine":   who + " 0" + where,
		"a process of who knows where":   who,
		"a name without a process":       host + " " + where,
		"a name whose process is a word": host + "/x " + where,
		"a group of processes":           host + "/-1 " + where,
		"nobody":                         "",
	} {
		if gone(name) {
			t.Errorf("%s, %q, is taken for gone", what, name)
		}
	}
}
