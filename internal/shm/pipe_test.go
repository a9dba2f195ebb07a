//go:build linux

package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestPipesCarryBytesBothWaysAndEnd(t *testing.T) {
	mine, name, closeName, err := CreatePipes()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := OpenPipes(name)
	if err != nil {
		t.Fatal(err)
	}
	closeName()
	for _, way := range [][2]*Pipes{{mine, theirs}, {theirs, mine}} {
		if !way[0].TryWrite([]byte("short")) {
			t.Fatal("an empty pipe does not take a short message")
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(way[1].In, b); err != nil || string(b) != "short" {
			t.Fatalf("%q arrives, %v", b, err)
		}
	}
	for n := 0; mine.TryWrite(make([]byte, pipeAtOnce)); n++ {
		if n > 1<<20/pipeAtOnce {
			t.Fatal("a pipe that nobody reads takes everything")
		}
	}
	theirs.Close()
	if mine.TryWrite([]byte("x")) {
		t.Error("a pipe without a reader takes a message")
	}
	if _, err := mine.In.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the other side has closed, and a read says %v", err)
	}
	mine.Close()
}

// A name comes from another process, maybe of another host, and is not trusted: nothing is read
// from what it leads to.
func TestNamesThatDoNotLeadToTheirPipesAreRefused(t *testing.T) {
	p, name, closeName, err := CreatePipes()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	defer closeName()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	with := func(i int, text string) string {
		parts := strings.Split(name, ".")
		parts[i] = text
		return strings.Join(parts, ".")
	}
	for what, bad := range map[string]string{
		"nothing": "", "five parts": name[:strings.LastIndexByte(name, '.')], "another machine": with(0, strings.Repeat("00", 16)), "a short boot id": with(0, "00"),
		"no process": with(1, "0"), "a file": with(2, fmt.Sprint(file.Fd())), "another pipe": with(3, "1"), "another pipe to write": with(5, "1"), "no number": with(4, "-1"),
	} {
		if q, err := OpenPipes(bad); !errors.Is(err, ErrNoSegment) {
			t.Errorf("%s: %v, %v; want %v", what, q, err, ErrNoSegment)
		}
	}
}
