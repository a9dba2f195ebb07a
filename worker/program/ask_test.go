package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi/worker/timeout"
)

// timed returns a Program that learns how long to wait, and whose answers take as long as the test
// says, in virtual time.
func timed(t *testing.T) (p *Program, takes chan<- time.Duration) {
	ours, its := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), its.Close() })
	p = &Program{child: &child{conn: ours, tail: &tail{}, lines: make(chan []byte), died: make(chan struct{})}}
	p.ofGradients.Fixed, p.ofEvaluations.Fixed = timeout.Learned, timeout.Learned
	long := make(chan time.Duration, 1)
	go func() {
		questions := bufio.NewScanner(its)
		for id := 1; questions.Scan(); id++ {
			time.Sleep(<-long)
			p.child.lines <- fmt.Appendf(nil, `{"id":%d}`, id)
		}
	}()
	return p, long
}

func TestTheTimeoutOfAProgramFollowsFromWhatWasWaitedForIt(t *testing.T) {
	const s = time.Second
	synctest.Test(t, func(t *testing.T) {
		p, takes := timed(t)
		ask := func(what string, long time.Duration) {
			t.Helper()
			takes <- long
			if _, err := p.ask(t.Context(), what, nil); err != nil {
				t.Fatal(err)
			}
		}
		limits := func(gradients, evaluations time.Duration) {
			t.Helper()
			if g, e := p.ofGradients.Limit(), p.ofEvaluations.Limit(); g != gradients || e != evaluations {
				t.Fatalf("limits of %v and %v; want %v and %v", g, e, gradients, evaluations)
			}
		}
		const first = 1800 * s
		ask("describe", 7000*s)
		ask("initialise", 7000*s)
		limits(first, first)
		for range 3 {
			ask("gradient", 10*s)
			limits(200*s, first)
		}
		ask("steps", 30*s)
		limits(600*s, first)
		ask("evaluate", 100*s)
		limits(600*s, 2000*s)

		// A gradient that nobody needs any more: the worker waits for it with the next question, and
		// not between the two.
		takes <- 50 * s
		ctx, cancel := context.WithTimeout(t.Context(), 5*s)
		defer cancel()
		if _, err := p.ask(ctx, "gradient", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if time.Sleep(10 * s); p.Settle(t.Context()) != nil {
			t.Fatal("it could not be settled")
		}
		limits(20*40*s, 2000*s)
	})
}
