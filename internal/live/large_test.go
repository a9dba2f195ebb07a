package live

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// A message about each chunk of a shard is as long as the shard has chunks. Two shards of 70,000
// chunks, as many as four and a half billion values each have, make their steps, save what their
// conductor plans, and survive the death of a head, over gRPC and through pipes. With the earlier
// limit of a MiB no step ever became stable: the answer, 1.9 MB with the distances that a plan asks
// for, broke each stream that it was sent on.
func TestShardsOfVeryManyChunksAreTrained(t *testing.T) {
	race.Skip(t)
	cfg := base(t)
	cfg.Workers, cfg.Steps, cfg.SaveEvery = 1, 8, 0
	few := cfg
	few.Layout = cut(t, []kintsugi.Tensor{{Name: "all", Shape: []int{140_000}}})
	want := run(t, few, nil)
	many := make([]kintsugi.Tensor, 140_000)
	for i := range many {
		many[i] = kintsugi.Tensor{Name: fmt.Sprint(i), Shape: []int{1}} // no two tensors share a chunk
	}
	cfg.Layout, cfg.Servers, cfg.Replicas, cfg.RunEvery = cut(t, many), 2, 2, 2
	for _, wire := range []worker.Wire{worker.WireAuto, worker.WireGRPC} {
		cfg.Wire = wire
		got := run(t, cfg, func(l *Cluster) {
			until(t, l, 3)
			l.KillServer(0)
			l.GoOn("a server died")
			until(t, l, 5)
		})
		if !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%v: another model than that of few chunks", wire)
		}
	}
}

func cut(t testing.TB, tensors []kintsugi.Tensor) *kintsugi.Layout {
	t.Helper()
	l, err := kintsugi.NewLayout(tensors)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
