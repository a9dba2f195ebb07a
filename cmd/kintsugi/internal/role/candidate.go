package role

import (
	"errors"
	"fmt"
	"os"
	"strconv"
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
	who, where, ok := strings.Cut(name, " ")
	pid, err := strconv.Atoi(who[strings.LastIndexByte(who, '/')+1:])
	if !ok || where != numbered() || err != nil || pid <= 0 {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
