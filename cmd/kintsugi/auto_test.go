package main

import (
	"testing"

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
