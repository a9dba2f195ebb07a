package kept

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Lines says how each line of the run began whose views the worker has seen, in ascending order. A
// worker that missed a view does not know what was restored in it.
type Lines []beginning

// beginning is how a line began, according to its views.
type beginning struct {
	line, keeps kintsugi.Line
	restored    []Range // values of the shards that were restored to older values by a partial restore
}

// See notes the line of a view. Every view of a line says how the line began.
func (b *Lines) See(l *kintsugi.Layout, v kintsugi.View) {
	if n := len(*b); n > 0 && (*b)[n-1].line >= v.Line {
		return
	}
	x := beginning{line: v.Line, keeps: v.Keeps}
	for i, chunks := range l.Split(len(v.Chains)) {
		if lo, hi := l.Span(chunks); lo < hi && slices.Contains(v.Lost, kintsugi.ShardID(i)) {
			x.restored = append(x.restored, Range{Lo: lo, Hi: hi})
		}
	}
	*b = append(*b, x)
}

// Since returns the values that were restored to older values on the way from one line to another,
// without overlaps. It returns false if line to does not keep line from, or if that is not known.
func (b Lines) Since(from, to kintsugi.Line) (restored []Range, ok bool) {
	next := from + 1
	for _, x := range b {
		if x.line < next || x.line > to {
			continue
		}
		if x.line > next || x.keeps == 0 || x.keeps > from {
			return nil, false
		}
		restored = append(restored, x.restored...)
		next++
	}
	return union(restored), next > to && to > from
}

// Forget drops the lines before the given one.
func (b *Lines) Forget(line kintsugi.Line) {
	*b = slices.DeleteFunc(*b, func(x beginning) bool { return x.line < line })
}

// union returns ranges that cover the same values, ascending and disjoint.
func union(ranges []Range) (all []Range) {
	slices.SortFunc(ranges, func(a, b Range) int { return a.Lo - b.Lo })
	for _, r := range ranges {
		if n := len(all); n > 0 && r.Lo <= all[n-1].Hi {
			all[n-1].Hi = max(all[n-1].Hi, r.Hi)
			continue
		}
		all = append(all, r)
	}
	return all
}
