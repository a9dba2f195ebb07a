package job

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// A shard of a program's model begins with its part of what the program described. If that is
// damaged, the error names the file, and not the checkpoints, of which there are none.
func TestAShardBeginsWithItsPartOfADescription(t *testing.T) {
	about := program.Description{Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{3, 40}}, {Name: "v", Shape: []int{50}}}}
	initial := make([]float32, about.Values())
	for i := range initial {
		initial[i] = float32(i)
	}
	path := filepath.Join(t.TempDir(), DescribedFile)
	var b strings.Builder
	if err := program.Write(&b, &about, initial); err != nil {
		t.Fatal(err)
	}
	load := func(content string, shard int) (server.Shard, error) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, p := &Settings{Described: path, Program: []string{"none"}}, &Problem{}
		if _, err := p.describeProgram(s); err != nil {
			t.Fatal(err)
		}
		c := Checkpoints{Settings: s, Problem: p, FS: vfs.NewMem(), Dir: "checkpoints", Log: slog.New(slog.DiscardHandler)}
		x := server.Shard{Chunks: p.Layout.Split(2)[shard]}
		lo, hi := p.Layout.Span(x.Chunks)
		x.Params, x.State = make([]float32, hi-lo), [][]float32{{1}}
		return x, c.Load(t.Context(), kintsugi.View{}, &x)
	}
	var all []float32
	for shard := range 2 {
		x, err := load(b.String(), shard)
		if err != nil || x.State[0][0] != 0 {
			t.Fatalf("shard %d: state %v, %v", shard, x.State, err)
		}
		all = append(all, x.Params...)
	}
	if !slices.Equal(all, initial) {
		t.Errorf("two shards begin with %v", all)
	}
	damaged := []byte(b.String())
	damaged[len(damaged)-1] ^= 1
	for shard := range 2 {
		if _, err := load(string(damaged), shard); !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "checkpoint") {
			t.Errorf("shard %d of a damaged description: %v", shard, err)
		}
	}
}
