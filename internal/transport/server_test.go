package transport

import (
	"net"
	"strings"
	"testing"
)

// There are three mistakes: a port that another process has, an address of another host, and an
// unknown name. Each error says what to do.
func TestAnAddressThatCannotBeListenedAtSaysWhatToDo(t *testing.T) {
	taken := must[net.Listener](t)(Listen("127.0.0.1:0"))
	defer taken.Close()
	for address, want := range map[string]string{
		taken.Addr().String(): "stop the process that has it",
		"203.0.113.7:7070":    "use an address of this host", // reserved for documentation
		"no..name:7070":       "use an address of this host",
	} {
		lis, err := Listen(address)
		if err == nil {
			lis.Close()
			t.Errorf("%s is listened at", address)
		} else if !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", address, err, want)
		}
	}
}
