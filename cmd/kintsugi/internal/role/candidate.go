package role

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// candidate returns the name under which this process campaigns as coordinator: host and process,
// for people, and after a space where the number of the process means something, for gone.
func candidate() string {
	host, _ := os.Hostname()
	return strings.TrimSpace(fmt.Sprintf("%s/%d %s", host, os.Getpid(), numbered()))
}

// numbered names the set of processes that are numbered together with this one: those of a boot of
// a machine, and of a namespace there. It is empty where that is not known.
func numbered() string {
	space, err := os.Readlink("/proc/self/ns/pid")
	boot := shm.Boot()
	if err != nil || boot == [16]byte{} {
		return ""
	}
	return fmt.Sprintf("%x-%s", boot, strings.Trim(space, "pid:[]"))
}

// gone reports whether a candidate was a process of this machine that is there no more.
func gone(name string) bool {
	var pid int
	who, where, ok := strings.Cut(name, " ")
	at := strings.LastIndexByte(who, '/')
	if !ok || at < 0 || where != numbered() {
		return false
	}
	if _, err := fmt.Sscanf(who[at:], "/%d", &pid); err != nil || pid <= 0 {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
