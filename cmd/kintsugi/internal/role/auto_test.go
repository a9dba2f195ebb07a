package role

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// A chooser takes a loss for the death of one host, however many shards were lost with it, and
// remembers it on later lines. It does so only where memory outside processes outlives them.
// Elsewhere a loss may be the death of a process, and those are counted separately.
func TestAChooserCountsLossesAsDeathsOfHosts(t *testing.T) {
	const day, hour = 86400, 3600
	var l learning
	for range 10 {
		l.idle.Add(1)
	}
	servers := []kintsugi.Member{{Incarnation: 3}, {Incarnation: 2}}
	for _, c := range []struct {
		outside       bool
		view          kintsugi.View
		process, host float64 // seconds between two deaths
	}{
		{true, kintsugi.View{Servers: servers}, choose.Rate(3, hour, day), choose.Rate(0, hour, 10*day)},
		{true, kintsugi.View{Servers: servers, Lost: []kintsugi.ShardID{0, 1}, Losses: 1}, choose.Rate(3, hour, day), choose.Rate(1, hour, 10*day)},
		{true, kintsugi.View{Servers: servers, Line: 9, Losses: 2}, choose.Rate(3, hour, day), choose.Rate(2, hour, 10*day)},
		{false, kintsugi.View{Servers: servers, Losses: 3}, choose.Rate(3, hour, day), 10 * day},
	} {
		a := &chooser{assumed: choose.Conditions{Model: 1, Outside: c.outside, ProcessEvery: day, HostEvery: 10 * day}, view: c.view}
		for range 10 {
			a.network.Add(1e9)
		}
		x, ok := a.conditions(&l, hour)
		if !ok || x.ProcessEvery != c.process || x.HostEvery != c.host {
			t.Errorf("%+v with memory outside %t: %t, a process dies every %.0f s and a host every %.0f s, want %.0f and %.0f",
				c.view, c.outside, ok, x.ProcessEvery, x.HostEvery, c.process, c.host)
		}
	}
}

// A chooser looks every ten seconds, once steps and transfers were measured, and says what it wants
// when that changes. Servers whose hosts die often get another replica; where nothing fails, none.
func TestAChooserSaysWhatItWantsOnce(t *testing.T) {
	for _, c := range []struct {
		losses int
		want   []int
	}{{losses: 100, want: []int{2}}, {losses: 0, want: []int{1}}} {
		var said []int
		a := &chooser{
			now:     choose.Option{Replicas: 1, Outside: true, Running: true},
			assumed: choose.Conditions{Servers: 2, Workers: 2, Hosts: 2, Model: 4e6, State: 4e6, ProcessEvery: 1e9, HostEvery: 1e5, Network: 1e9, Memory: 4e9, Store: 1e8, Restart: 5, Failover: 0.3, Rework: 20, Outside: true, Most: 2},
			view:    kintsugi.View{Servers: []kintsugi.Member{{Incarnation: 1}, {Incarnation: 1}}, Losses: c.losses},
			log:     slog.New(slog.DiscardHandler), tell: func(w wish) { said = append(said, w.Replicas) },
		}
		var l learning
		for range 10 {
			l.idle.Add(0.1)
		}
		begin := time.Unix(1000, 0)
		for i := range 400 {
			before := len(said)
			at := begin.Add(time.Duration(i) * 100 * time.Millisecond)
			a.observe(&l, kintsugi.StepEvent{Step: kintsugi.Step(10000 + i), Time: at, Times: []kintsugi.GradientTime{{Transfer: 4 * time.Millisecond}}})
			if len(said) > before && at.Sub(begin) != chooseEvery {
				t.Errorf("with %d losses, it said %d after %v", c.losses, said[before], at.Sub(begin))
			}
		}
		a.observe(&l, kintsugi.CheckpointEvent{})
		if !slices.Equal(said, c.want) {
			t.Errorf("with %d losses in 1000 s it wants %d replicas, want %d", c.losses, said, c.want)
		}
	}
}
