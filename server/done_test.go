package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// bare returns a server with the only shard of a run, at step 0, the conducting of its first view,
// and a function that ends that view.
func bare(t *testing.T, cfg Config) (s *Server, c *conducting, end func()) {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{7}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Layout, cfg.Slots, cfg.Steps = l, 1, 10
	cfg.NextFence = func(context.Context, kintsugi.View) (kintsugi.Fence, error) { return 2, nil }
	s = New(cfg)
	s.life = t.Context()
	ctx, cancel := context.WithCancel(t.Context())
	if c, err = s.newConducting(ctx, kintsugi.View{Number: 1, Line: 1, Chains: [][]kintsugi.ServerID{{0}}, Servers: []kintsugi.Member{{}}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.loop.run()
		c.work.Wait()
	}()
	c.post(func() {
		c.core.ShardConnected(0)
		c.core.HandleReplica(time.Now(), kintsugi.Taken{Fence: 2})
	})
	return s, c, func() { cancel(); <-ended }
}

var errNobody = errors.New("nobody answers")

// The end of a run is reported until somebody receives it, and nothing waits for that: the receiver
// may be away just then, and workers may still ask.
func TestTheLastWordIsSaidUntilItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, back := 0, make(chan struct{})
		var word kintsugi.Done
		s, c, end := bare(t, Config{Done: func(_ context.Context, d kintsugi.Done) error {
			if said++; said < 3 {
				return errNobody
			}
			<-back
			word = d
			return nil
		}})
		c.stop("enough", false)
		if err := c.do(func() {}); err != nil || !c.core.Finished() {
			t.Fatalf("finished: %v, %v", c.core.Finished(), err)
		}
		synctest.Wait()
		end() // the view ends
		time.Sleep(time.Minute)
		close(back)
		s.saves.Wait()
		if word.Reason != "enough" {
			t.Errorf("it was said %d times, and heard %+v", said, word)
		}
	})
}

// A process that is about to leave waits for the report that the run stands still. It is repeated
// until it is received, as long as the view lasts.
func TestThatTheRunStandsIsSaidUntilItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		s, c, end := bare(t, Config{
			Publish: func(context.Context, Checkpoint) (string, error) { return "run", nil },
			Held: func(context.Context, kintsugi.ViewNumber, kintsugi.Step) error {
				if said++; said < 3 {
					return errNobody
				}
				return nil
			},
		})
		c.stand()
		c.post(func() { c.core.HandleReplica(time.Now(), kintsugi.Saved{Manifest: "part"}) })
		time.Sleep(time.Minute)
		end()
		if s.saves.Wait(); said != 3 {
			t.Errorf("it was said %d times, and heard the third time", said)
		}
	})
}
