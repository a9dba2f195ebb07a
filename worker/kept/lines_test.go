package kept

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// A worker knows what came back older since a line only if it has seen how each line since then
// began, and all of them keep that line.
func TestWhatCameBackSinceALineIsKnownOfEveryLineSince(t *testing.T) {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{96}}})
	if err != nil {
		t.Fatal(err)
	}
	view := func(line, keeps kintsugi.Line, shards int, lost ...kintsugi.ShardID) kintsugi.View {
		return kintsugi.View{Line: line, Keeps: keeps, Lost: lost, Chains: make([][]kintsugi.ServerID, shards)}
	}
	for name, c := range map[string]struct {
		views []kintsugi.View
		want  []Range
		ok    bool
	}{
		"the next line, all of whose shards stayed":   {[]kintsugi.View{view(4, 0, 3), view(5, 2, 3)}, nil, true},
		"the next line, and a shard came back":        {[]kintsugi.View{view(4, 0, 3), view(5, 2, 3, 1)}, []Range{{Lo: 32, Hi: 64}}, true},
		"the same line in a later view":               {[]kintsugi.View{view(5, 2, 3, 1), view(5, 2, 3, 1)}, []Range{{Lo: 32, Hi: 64}}, true},
		"a line that keeps a later one alone":         {[]kintsugi.View{view(5, 5, 3, 1)}, nil, false},
		"a line on which all are restored":            {[]kintsugi.View{view(5, 0, 3)}, nil, false},
		"a line whose beginning nobody has seen":      {[]kintsugi.View{view(4, 0, 3)}, nil, false},
		"the one after next, which was not joined in": {[]kintsugi.View{view(6, 4, 3, 1)}, nil, false},
	} {
		var b Lines
		for _, v := range c.views {
			b.See(layout, v)
		}
		if got, ok := b.Since(4, 5); ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
	var b Lines
	for _, v := range []kintsugi.View{view(5, 4, 3, 1), view(6, 4, 3, 2), view(7, 4, 6, 0, 4, 5)} {
		b.See(layout, v)
	}
	for to, want := range map[kintsugi.Line][]Range{
		4: nil, 5: {{Lo: 32, Hi: 64}}, 6: {{Lo: 32, Hi: 96}}, 7: {{Lo: 0, Hi: 16}, {Lo: 32, Hi: 96}}, 8: nil,
	} {
		if got, ok := b.Since(4, to); ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("from line 4 to %d: %v, %v; want %v", to, got, ok, want)
		}
	}
	b.Forget(6)
	if _, ok := b.Since(4, 6); ok || len(b) != 2 {
		t.Errorf("%+v is left", b)
	}
}
