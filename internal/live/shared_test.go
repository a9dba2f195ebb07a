//go:build linux

package live

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// inSharedMemory reports whether an array lies in memory that is shared with other processes.
func inSharedMemory(t *testing.T, x []float32) bool {
	var at uint64
	if _, err := fmt.Sscanf(fmt.Sprintf("%p", &x[0]), "0x%x", &at); err != nil {
		t.Error(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(maps)) {
		var lo, hi uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &lo, &hi); err == nil && lo <= at && at < hi {
			return strings.Contains(line, "memfd:kintsugi")
		}
	}
	return false
}

// Nothing is copied between a gradient and the kernel if both can use the same memory: it is
// computed where the servers read it.
func TestGradientsAreComputedWhereServersReadThem(t *testing.T) {
	for _, wire := range []worker.Wire{worker.WireShared, worker.WireGRPC} {
		cfg := base(t)
		cfg.Servers, cfg.Wire, cfg.Steps = 3, wire, 5
		var mu sync.Mutex
		shared, all := 0, 0
		cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
			mu.Lock()
			defer mu.Unlock()
			if all++; inSharedMemory(t, grads) {
				shared++
			}
			return noisy(ctx, params, grads, id)
		}
		run(t, cfg, nil)
		if want := map[worker.Wire]int{worker.WireShared: all, worker.WireGRPC: 0}[wire]; shared != want || all < 5*cfg.Workers {
			t.Errorf("wire %v: %d of %d gradients were computed in shared memory, want %d", wire, shared, all, want)
		}
	}
}

// Encoded gradients are the same through shared memory, whether they are encoded in place or packed
// elsewhere and copied there.
func TestTheWireDoesNotChangeTheModelOfACodec(t *testing.T) {
	groups := slices.Collect(slices.Chunk(specs, 4))
	if brief() {
		groups = groups[:1] // what passes between goroutines is the same for all codecs
	}
	for _, of := range groups {
		cfg := withCodecs(t, base(t), of...)
		cfg.Servers, cfg.Steps = 2, 30
		cfg.Wire = worker.WireGRPC
		want := run(t, cfg, nil)
		cfg.Wire = worker.WireShared
		if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%v: the model depends on the wire", of)
		}
	}
}
