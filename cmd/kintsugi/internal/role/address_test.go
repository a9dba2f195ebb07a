package role

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// What a server registers can be dialled, or the server is refused.
func TestWhatIsRegisteredCanBeDialled(t *testing.T) {
	for _, c := range []struct{ listen, reached, want string }{
		{"10.0.0.2:7070", "", "the listener's"},
		{"server-1:0", "", "the listener's"},
		{"0.0.0.0:7070", "", ""},
		{":7070", "", ""},
		{"[::]:7070", "", ""},
		{"0.0.0.0:7070", "203.0.113.7:30070", "203.0.113.7:30070"},
		{":7070", "203.0.113.7", "203.0.113.7:7070"},
		{":7070", "node-1.example.org", "node-1.example.org:7070"},
		{"127.0.0.1:7070", "fd00::7", "[fd00::7]:7070"},
		{"127.0.0.1:7070", "[fd00::7]", "[fd00::7]:7070"},
		{"127.0.0.1:7070", "[fd00::7]:80", "[fd00::7]:80"},
		{"127.0.0.1:7070", "0.0.0.0:7070", ""},
		{"127.0.0.1:7070", ":7070", ""},
		{"127.0.0.1:7070", "203.0.113.7:0", ""},
		{"127.0.0.1:7070", "203.0.113.7:70:80", ""},
		{"127.0.0.1:7070", "203.0.113.7:99999", ""},
		{"127.0.0.1:7070", "http://203.0.113.7:7070", ""},
		{"127.0.0.1:7070", "http://server", ""},
		{"127.0.0.1", "203.0.113.7:7070", ""},
	} {
		err := checkListen(c.listen, c.reached)
		if (err == nil) != (c.want != "") || err != nil && !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("--listen %s --advertise %q: %v", c.listen, c.reached, err)
		}
		if c.reached == "" || err != nil {
			continue
		}
		if got, err := dialled(c.reached, "7070"); got != c.want || err != nil {
			t.Errorf("--advertise %s behind port 7070 is %q (%v), want %q", c.reached, got, err, c.want)
		}
	}
}
