package etcd

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestStopIsSeenByEverybodyAndDoneIsSaidOnce(t *testing.T) {
	b := startEtcd(t)
	c, other := b.dial(t), b.dial(t)
	ctx := within(t)
	early := other.WatchStop(ctx)
	want := Stop{Checkpoint: true, Reason: "interrupted"}
	if err := c.PutStop(ctx, want); err != nil {
		t.Fatal(err)
	}
	await(t, early, "the request", func(s Stop) bool { return s == want })
	await(t, other.WatchStop(ctx), "the request, seen late", func(s Stop) bool { return s == want })

	first, err := c.PutDone(ctx, kintsugi.Done{Step: 7, Reason: "all steps"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := other.PutDone(ctx, kintsugi.Done{Step: 8, Reason: "too late"})
	if err != nil || first != second {
		t.Errorf("%+v after %+v, %v", second, first, err)
	}
	await(t, other.WatchDone(ctx), "the last word", func(d kintsugi.Done) bool { return d == first })

	if err := c.Reopen(ctx); err != nil {
		t.Fatal(err)
	}
	all := func(step kintsugi.Step) kintsugi.Done { return kintsugi.Done{Step: step, Reason: kintsugi.AllSteps} }
	if d, err := c.PutDone(ctx, all(9)); err != nil || d != all(9) {
		t.Errorf("after Reopen: %+v, %v", d, err)
	}
	// A run that is started again with more steps ends again, and the earlier record does not count
	// then.
	if d, err := other.PutDone(ctx, all(20)); err != nil || d != all(20) {
		t.Errorf("after more steps: %+v, %v", d, err)
	}
	if d, err := c.PutDone(ctx, all(9)); err != nil || d != all(20) {
		t.Errorf("after what was said before: %+v, %v", d, err)
	}
	await(t, c.WatchDone(ctx), "the last word", func(d kintsugi.Done) bool { return d == all(20) })

	// What could not be saved at the end may be saved later. That changes nothing else in the
	// record, and is not taken back.
	saved := all(20)
	saved.Saved = true
	for _, d := range []kintsugi.Done{{Step: 20, Reason: "interrupted", Saved: true}, all(20), {Step: 19, Reason: "interrupted", Saved: true}} {
		if got, err := c.PutDone(ctx, d); err != nil || got != saved {
			t.Errorf("after %+v the word is %+v, %v; want %+v", d, got, err, saved)
		}
	}
	await(t, other.WatchDone(ctx), "that it is saved", func(d kintsugi.Done) bool { return d == saved })
}

// A run that has done its steps and goes on with more is not over. One that was ended early is,
// however many steps it has.
func TestARunThatGoesOnIsNotOver(t *testing.T) {
	c := startEtcd(t).dial(t)
	ctx := within(t)
	if err := c.GoOn(ctx, 5); err != nil {
		t.Fatal(err)
	}
	all, early := kintsugi.Done{Step: 9, Reason: kintsugi.AllSteps}, kintsugi.Done{Step: 7, Reason: "interrupted"}
	for _, x := range []struct {
		d     kintsugi.Done
		steps kintsugi.Step
		over  bool
	}{{all, 8, true}, {all, 9, true}, {all, 10, false}, {early, 10, true}} {
		if err := c.Reopen(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutDone(ctx, x.d); err != nil {
			t.Fatal(err)
		}
		if err := c.GoOn(ctx, x.steps); err != nil {
			t.Fatal(err)
		}
		if d, err := c.Done(ctx); err != nil || (d != nil) != x.over || d != nil && *d != x.d {
			t.Errorf("%+v, going on to step %d: %+v, %v", x.d, x.steps, d, err)
		}
	}
}

func TestAWordOfFewerStepsEndsNoRun(t *testing.T) {
	for _, c := range []struct {
		d    kintsugi.Done
		want bool
	}{
		{kintsugi.Done{Step: 100, Reason: kintsugi.AllSteps}, true}, {kintsugi.Done{Step: 99, Reason: kintsugi.AllSteps}, false}, {kintsugi.Done{Step: 7, Reason: "interrupted"}, true},
	} {
		if got := c.d.Ends(100); got != c.want {
			t.Errorf("%+v ends a run of 100 steps: %v", c.d, got)
		}
	}
}
