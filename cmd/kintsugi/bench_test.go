package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// columns splits a line of a table. Cells have no two spaces in a row.
var columns = regexp.MustCompile(`  +`)

// Every benchmark runs and prints a table that is whole, at its smallest settings: what they measure
// there means nothing. Those without a cluster print it in each format.
func TestEveryBenchmarkRuns(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	onlyLong(t)
	for _, args := range []string{
		"bench engine --models mlp --rounds 1 --batch 8 --threads 1 --at-least 2ms",
		"bench engine --models mlp --rounds 1 --batch 8 --threads 1 --at-least 2ms --variants native",
		"bench codec --codecs int8 --sizes 1 --threads 1 --pairs 2",
		"bench snapshot --state 8 --steps 4 --block 2",
		"bench step --values 262144 --steps 3 --rounds 1 --wires shm",
		"bench wire --sizes 1 --rounds 2",
	} {
		for _, format := range []string{"text", "json", "benchfmt"} {
			out := must(t, append(strings.Fields(args), "--format", format)...)
			switch {
			case strings.Contains(out, "NaN") || strings.Contains(out, "%!"):
				t.Errorf("%s, %s:\n%s", args, format, out)
			case format == "json" && !json.Valid([]byte(out)):
				t.Errorf("%s prints no JSON:\n%s", args, out)
			case format == "text":
				wholeTable(t, args, out)
			case format == "benchfmt" && !strings.HasPrefix(out, "Benchmark"):
				t.Errorf("%s prints no Go benchmarks:\n%s", args, out)
			}
		}
	}
	for _, args := range []string{
		"bench accuracy --models mf --plain --seeds 1 -- --steps 5",
		"bench alarms --for 10s --loaded=false --model qp --workers 1 -- --gradient-time 50ms",
		"bench consistency --presets bsp --target 0.999 -- --steps 25 --model mlr --servers 1 --workers 1",
		"bench failover --model qp --recoveries checkpoint --kills 1 --loaded no --every 50 --servers 1 --workers 1",
		"bench goodput --quick --model qp --recoveries gold --for 2s --warm-up 6s --tail 1s --mtbf 1s --loss kill --servers 1 --workers 1 --down 100ms",
		"bench kills --kills 1 --calm 2 --steps 100 --only server --recovery stateless --servers 1 --workers 1 -- --model qp",
		"bench local --models mlr --local-steps 1,4 --seeds 1 -- --steps 5 --servers 1 --workers 1",
		"bench overhead --model qp --fractions 1/2 --limits 50MB/s --rounds 1 --steps 50 --servers 1 --workers 1",
		"bench preempt --recoveries gold --pairs 1 --every 50 --parts worker/0 --servers 1 --workers 1 -- --model qp",
		"bench rework --models mlr --seeds 1 --period 8 --recoveries checkpoint --servers 2 --workers 1",
		"bench stragglers --presets bsp --rounds 1 --steps 50 --workers 2 --servers 1 --fault slow_worker/1_x2_from_step_1 -- --model qp",
		"bench tax --models qp --recoveries none --rounds 1 --steps 50 --servers 1 --workers 1",
		"reproduce codecs --quick --models mlp --codecs int8 --out codecs",
		"simulate --workers 4 --consistency async --model digits --mean 100ms --outage 20s --lose 0.33 --steps 100 --seeds 1",
	} {
		t.Run(strings.Join(strings.Fields(args)[:2], " "), func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(args)
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "_", " ")
			}
			wholeTable(t, args, must(t, words...))
		})
	}
}

// wholeTable fails unless what a benchmark has printed holds a table, in which no cell is missing
// and no figure is NaN.
func wholeTable(t *testing.T, args, out string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	at := 0
	for at < len(lines) && len(columns.Split(lines[at], -1)) < 4 {
		at++ // text before it
	}
	rows := 0
	for _, line := range lines[min(at+1, len(lines)):] {
		cells := columns.Split(line, -1)
		if len(cells) < 4 {
			break // text after it
		}
		if rows++; len(cells) != len(columns.Split(lines[at], -1)) {
			t.Errorf("%s prints a line with other columns than the head of its table:\n%s", args, out)
			return
		}
	}
	if rows == 0 || strings.Contains(out, "NaN") || strings.Contains(out, "%!") {
		t.Errorf("%s prints no table, or one that is not whole:\n%s", args, out)
	}
}
