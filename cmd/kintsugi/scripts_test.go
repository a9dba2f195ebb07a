package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scriptLine finds a kintsugi command in a script of deploy/slurm. It leaves out the program's name
// and what the shell does with the command.
var scriptLine = regexp.MustCompile(`"\$kintsugi" ([a-z].*?)(?: &|; })?$`)

// The Slurm scripts start roles that this program has, with flags that they have.
func TestTheScriptsForSlurmStartTheRolesThatThereAre(t *testing.T) {
	files, err := filepath.Glob("../../deploy/slurm/*.sbatch")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scripts: %v", err)
	}
	set := strings.NewReplacer(`"${memory[@]}"`, "--outside file", `"$@"`, "", "$((port + 1))", "2380", `$(address "$at")`, "n1", `"$1"`, "0", `"$index"`, "0",
		"$run", "run", "$etcd", "n1:2379", "$address", "n1:2379")
	roles := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m := scriptLine.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			command := set.Replace(m[1])
			if err := parses(command, true); err != nil || strings.Contains(command, "$") {
				t.Errorf("%s: %q: %v", file, command, err)
			}
			name, _, _ := strings.Cut(command, " ")
			roles[name] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(roles)), []string{"coordinator", "etcd", "monitor", "server", "worker"}; !slices.Equal(got, want) {
		t.Errorf("the scripts start %v, and should start %v", got, want)
	}
}
