package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Three etcds on three hosts find one another, whatever web proxy the environment of the hosts
// names, and a command on any of the hosts reaches all of them.
func TestEtcdsOnHostsFindOneAnother(t *testing.T) {
	all, dir := newHosts(t, 3, 0), t.TempDir()
	args := []string{"etcd"}
	for i, h := range all.list {
		args = append(args, "--peer", fmt.Sprintf("%c=%s:2380", 'a'+i, h.address()))
	}
	log := func(i int) string { return filepath.Join(dir, fmt.Sprintf("etcd-%d.log", i)) }
	endpoints := ""
	for i, h := range all.list {
		h.start(t, log(i), append(args, "--name", string(rune('a'+i)), "--listen", h.address()+":2379", "--dir", filepath.Join(dir, fmt.Sprintf("etcd-%d", i)))...)
		endpoints += h.address() + ":2379,"
	}
	says := func(file, what string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte(what))
	}
	for i := range all.list {
		eventually(t, "an etcd is ready", func() bool { return says(log(i), "ready: --etcd") })
	}
	status := filepath.Join(dir, "status.log")
	all.list[0].start(t, status, "status", "--etcd", endpoints[:len(endpoints)-1])
	eventually(t, "the status of a run", func() bool { return says(status, "not begun") })
}
