package worker

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kintsugi-ml/kintsugi"
)

// arriving returns an arrival of 64 values from two sources, of which nothing has landed but the
// first frame of each: 8 values.
func arriving(t *testing.T) *arrival {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{8, 8}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Chunks) != 4 {
		t.Fatalf("the layout has %d chunks", len(l.Chunks))
	}
	a := &arrival{from: []*source{{layout: l, chunks: kintsugi.ChunkRange{Hi: 2}}, {layout: l, chunks: kintsugi.ChunkRange{Lo: 2, Hi: 4}}}, landed: []int{8, 40}}
	a.moved.L = &a.mu
	return a
}

// A layer begins when all of its parameters are here, from each shard that has some, and waits for
// no others.
func TestALayerWaitsForItsParametersAlone(t *testing.T) {
	for _, x := range []struct {
		name   string
		lo, hi int
		moves  [][2]int // by source, how far it has come
		after  int      // moves after which the layer begins
	}{
		{"they are here", 0, 8, nil, 0},
		{"those of the second shard are here", 32, 40, nil, 0},
		{"some of the first shard are missing", 0, 9, [][2]int{{1, 64}, {0, 16}}, 2},
		{"of both shards, the first comes last", 20, 40, [][2]int{{1, 48}, {0, 24}, {0, 32}}, 3},
		{"of both shards, the second comes last", 8, 41, [][2]int{{0, 32}, {1, 48}}, 2},
		{"the last", 63, 64, [][2]int{{0, 32}, {1, 56}, {1, 64}}, 3},
		{"of none", 40, 40, nil, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := arriving(t)
				begins := make(chan bool, 1)
				go func() { begins <- a.need(x.lo, x.hi) }()
				for n := 0; ; n++ {
					synctest.Wait()
					if begun := len(begins) == 1; begun != (n >= x.after) {
						t.Fatalf("after %d moves it has begun: %v", n, begun)
					}
					if n == len(x.moves) {
						break
					}
					a.move(x.moves[n][0], x.moves[n][1], nil)
				}
				if !<-begins {
					t.Error("its parameters will not come")
				}
			})
		})
	}
}

// If a shard breaks, a layer whose parameters are missing is told so, and one that has them is not
// started either: its gradient could not be completed. The first error is the reason, also if it
// comes after a shard that is complete; who waits for the whole version waits for each shard.
func TestAnArrivalEndsWithItsFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, first := arriving(t), errors.New("the first")
		begins, ends := make(chan bool, 1), make(chan error, 1)
		stop := make(chan struct{})
		a.wg.Go(func() { <-stop })
		go func() { begins <- a.need(0, 64) }()
		a.move(0, 32, nil)
		a.move(1, 48, first)
		a.move(0, 32, errors.New("the second"))
		synctest.Wait()
		if len(begins) != 1 || <-begins {
			t.Error("a layer waits for parameters that will not come, or has begun without them")
		}
		if a.need(0, 8) {
			t.Error("a layer has begun whose gradient cannot be completed")
		}
		go func() { ends <- a.wait() }()
		synctest.Wait()
		if len(ends) != 0 {
			t.Error("the arrival has ended before its last shard")
		}
		close(stop)
		if err := <-ends; err != first {
			t.Errorf("it ended with %v, want the first error", err)
		}
	})
}
