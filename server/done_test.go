package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// That the run is over is said until it is heard, and nothing waits for that: whoever keeps the word may be away just then, and a worker may still ask.
func TestTheLastWordIsSaidUntilItIsHeard(t *testing.T) {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{7}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		said, back := 0, make(chan struct{})
		var word kintsugi.Done
		s := New(Config{
			Layout: l, Slots: 1, Steps: 10,
			NextFence: func(context.Context, kintsugi.View) (kintsugi.Fence, error) { return 2, nil },
			Done: func(_ context.Context, d kintsugi.Done) error {
				if said++; said < 3 {
					return errors.New("nobody answers")
				}
				<-back
				word = d
				return nil
			},
		})
		s.life = t.Context()
		ctx, cancel := context.WithCancel(t.Context())
		c, err := s.newConducting(ctx, kintsugi.View{Number: 1, Line: 1, Chains: [][]kintsugi.ServerID{{0}}, Servers: []kintsugi.Member{{}}})
		if err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		work.Go(c.loop.run)
		err = c.do(func() {
			c.core.ShardConnected(0)
			c.core.HandleReplica(time.Now(), kintsugi.Taken{Fence: 2})
		})
		c.stop("enough", false)
		if err = errors.Join(err, c.do(func() {})); err != nil || !c.core.Finished() {
			t.Fatalf("finished: %v, %v", c.core.Finished(), err)
		}
		time.Sleep(time.Minute)
		cancel() // the view is over
		work.Wait()
		close(back)
		s.saves.Wait()
		if word.Reason != "enough" {
			t.Errorf("it was said %d times, and heard %+v", said, word)
		}
	})
}
