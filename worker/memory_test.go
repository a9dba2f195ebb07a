package worker

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// A session uses the memory of an earlier one again, but only if nobody can still read it: no head
// of the same view, and no message that may have to be repeated.
func TestMemoryOfAnEarlierViewIsUsedAgain(t *testing.T) {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{5000}}})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := compress.Parse("int8")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		first, second Config
		then          kintsugi.ViewNumber
		again         bool
	}{
		"the next view":          {Config{}, Config{}, 8, true},
		"the same view":          {Config{}, Config{}, 7, false},
		"payloads of a codec":    {Config{Codec: codec}, Config{Codec: codec}, 8, false},
		"another number of them": {Config{}, Config{Pace: kintsugi.Pace{Credit: 3}}, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(cfg Config, before rooms) rooms {
				cfg.Layout, cfg.Pace.Credit = layout, max(1, cfg.Pace.Credit)
				all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}
				r := newRooms(&cfg, []*shardStreams{{pushes: []kintsugi.ChunkRange{all}}}, before)
				if r.memory == nil {
					t.Skip(r.why)
				}
				return r
			}
			var w used
			first := open(c.first, w.before(7))
			first.last[0] = kintsugi.PushID{Version: 3}
			w.use(first, 7)
			second := open(c.second, w.before(c.then))
			if again := second.memory == first.memory; again != c.again {
				t.Errorf("the memory is used again: %v, want %v", again, c.again)
			}
			if second.last[0] != (kintsugi.PushID{}) {
				t.Errorf("a room is taken by %v, of a session that is over", second.last[0])
			}
			w.use(second, c.then)
			w.close()
		})
	}
}
