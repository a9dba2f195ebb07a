package ckpt

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// The folders of a checkpoint.
const (
	runDir     = "manifest"
	shardDir   = "shard"
	segmentDir = "segment"
	tmpDir     = "tmp"
)

// Folders returns the names of the folders of a place that hold saved data. The folder of claims,
// which say which run the place belongs to, is not among them.
func Folders() []string { return []string{runDir, shardDir, segmentDir} }

// fileName is the content of a file's name. Run manifests have no shard and no attempt.
//
// A segment and the shard manifest that was published with it have the same name. Attempt makes it
// unique. The Writer that creates the segment first has the name; the next one (of a process that
// came back, or a save that is tried again) takes the next number.
type fileName struct {
	Line    kintsugi.Line
	Step    kintsugi.Step
	Fence   kintsugi.Fence
	Shard   kintsugi.ShardID
	Attempt uint32
}

// compare orders names by (line, step, fence, shard, attempt), which is also their alphabetical
// order.
func (n fileName) compare(o fileName) int {
	return cmp.Or(
		cmp.Compare(n.Line, o.Line),
		cmp.Compare(n.Step, o.Step),
		cmp.Compare(n.Fence, o.Fence),
		cmp.Compare(n.Shard, o.Shard),
		cmp.Compare(n.Attempt, o.Attempt),
	)
}

// before compares (line, step) only.
func (n fileName) before(o fileName) bool {
	return cmp.Or(cmp.Compare(n.Line, o.Line), cmp.Compare(n.Step, o.Step)) < 0
}

// run returns the name of a run manifest. Numbers are padded, so that names sort like numbers.
func (n fileName) run() string {
	return fmt.Sprintf("%020d-%020d-%020d", n.Line, n.Step, n.Fence)
}

// shard returns the name of a shard manifest or a segment.
func (n fileName) shard() string {
	return fmt.Sprintf("%s-%010d-%010d", n.run(), n.Shard, n.Attempt)
}

// parseRunName reverses run. It accepts nothing else, so a name never leads out of its folder.
func parseRunName(s string) (fileName, bool) {
	n, ok := parseName(s, 3)
	return n, ok && n.run() == s
}

// parseShardName reverses shard.
func parseShardName(s string) (fileName, bool) {
	n, ok := parseName(s, 5)
	return n, ok && n.shard() == s
}

func parseName(s string, want int) (fileName, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != want {
		return fileName{}, false
	}
	var numbers [5]uint64
	for i, p := range parts {
		bits := 64
		if i >= 3 {
			bits = 32
		}
		v, err := strconv.ParseUint(p, 10, bits)
		if err != nil {
			return fileName{}, false
		}
		numbers[i] = v
	}
	return fileName{
		Line:    kintsugi.Line(numbers[0]),
		Step:    kintsugi.Step(numbers[1]),
		Fence:   kintsugi.Fence(numbers[2]),
		Shard:   kintsugi.ShardID(numbers[3]),
		Attempt: uint32(numbers[4]),
	}, true
}

// parseIn parses a path relative to the checkpoint, such as shard/…, which must lie in folder dir.
func parseIn(dir, file string) (fileName, bool) {
	base, ok := strings.CutPrefix(file, dir+"/")
	switch {
	case !ok:
		return fileName{}, false
	case dir == runDir:
		return parseRunName(base)
	case dir == lineDir:
		return parseClaimName(base)
	}
	return parseShardName(base)
}
