package launch

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// outlive NAME SOCKET reports what the life before has left outside the process, leaves something
// itself, and serves.
func outlive(args []string) error {
	f, err := shm.OpenFile(Path)
	if err != nil {
		return err
	}
	found := "nothing"
	if len(f.Bytes()) > 0 {
		found = "something"
	} else if err := f.Resize(4096); err != nil {
		return err
	}
	return serve([]string{found, args[1]})
}

// What a server leaves outside its process is there for its next life, and gone if its host is
// gone, whether or not /dev/shm of a container has room.
func TestTheNextLifeFindsWhatWasLeftOutsideUnlessItsHostIsGone(t *testing.T) {
	o, err := NewOutside(2, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := newMeeting(t)
	c, _ := m.cluster(Config{})
	part := Part{Server, 1}
	spec := m.spec(part, "outlive")
	spec.Files = []*os.File{o.File(1)}
	must(t, c.Start(spec))
	for life, want := range []string{"nothing", "something", "nothing"} {
		g := m.next()
		if g.name != want {
			t.Errorf("life %d found %s, want %s", life+1, g.name, want)
		}
		if life == 1 {
			must(t, o.Forget(1))
		}
		g.answers()
		must(t, c.Kill(part, false))
		g.dies()
	}
	if at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", o.File(1).Fd())); err != nil || strings.HasPrefix(at, "/dev/shm") {
		t.Errorf("it lies in %s: %v", at, err)
	}
	must(t, c.Stop(t.Context())) // otherwise it starts the next life meanwhile
	must(t, o.Remove())
	if _, err := o.File(0).Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after it was removed: %v", err)
	}
}
