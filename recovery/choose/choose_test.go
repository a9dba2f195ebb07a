package choose_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// cluster is a run of a model of 400 MB, with each server on its own host.
func cluster() choose.Conditions {
	return choose.Conditions{
		Servers: 4, Workers: 8, Hosts: 4, Model: 4e8, State: 1.2e9, Step: 1, ProcessEvery: 86400, HostEvery: 7 * 86400,
		Network: 1e9, Memory: 5e9, Store: 2e8, Restart: 5, Failover: 0.3, Rework: 4, Outside: true, Most: 2,
	}
}

func TestWhatIsChosenFollowsWhatIsDear(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*choose.Conditions)
		want   string
	}{
		"hosts die each hour, some together, a restart is long": {func(c *choose.Conditions) {
			c.HostEvery, c.Network, c.Restart, c.Together, c.Rework, c.Step = 3600, 1e10, 120, 0.4, 1, 5
		}, "gold with 2 replicas"},
		"the same, one by one": {func(c *choose.Conditions) { c.HostEvery, c.Network, c.Restart, c.Step = 3600, 1e10, 120, 5 }, "chain with 2 replicas"},
		"the same, and bytes between them are dear": {func(c *choose.Conditions) {
			c.HostEvery, c.Network, c.Restart, c.Step, c.ServerHour, c.PerByte = 3600, 1e10, 120, 5, 1, 1e-9
		}, "checkpoint with 1 replica"},
		"the store is slow, shards are dear to save": {func(c *choose.Conditions) { c.HostEvery, c.Store, c.Network = 1800, 1e7, 1e8 }, "scar with 1 replica"},
		"processes die all the time and hosts do not": {func(c *choose.Conditions) {
			c.ProcessEvery, c.HostEvery, c.Network, c.Store, c.Failover = 60, math.Inf(1), 1e8, 1e8, 5
		}, "stateless with 1 replica"},
		"both, and the network is slow":               {func(c *choose.Conditions) { c.ProcessEvery, c.HostEvery, c.Network, c.Store = 60, 1800, 1e8, 1e7 }, "gold with 1 replica"},
		"nothing is outside, and the network is fast": {func(c *choose.Conditions) { c.Outside, c.ProcessEvery, c.Network, c.Restart = false, 600, 1e11, 60 }, "chain with 2 replicas"},
		"nothing has ever failed":                     {func(c *choose.Conditions) { c.ProcessEvery, c.HostEvery = math.Inf(1), math.Inf(1) }, "checkpoint with 1 replica"},
	} {
		x := cluster()
		c.change(&x)
		got := choose.Choose(x, nil, nil)
		replicas := "replica"
		if got.Replicas > 1 {
			replicas = "replicas"
		}
		if name2 := fmt.Sprintf("%s with %d %s", got.Name(), got.Replicas, replicas); name2 != c.want {
			t.Errorf("%s: %s, want %s\n%s\n%+v", name, name2, c.want, got.Why, got.All)
		}
		if !strings.Contains(got.Why, "while nothing fails") || len(got.All) != len(x.Options()) {
			t.Errorf("%s: %q of %d options", name, got.Why, len(got.All))
		}
	}
}

// The reason names the choice, the next best one, and how often what fails does.
func TestAChoiceSaysWhy(t *testing.T) {
	for says, change := range map[string]func(*choose.Conditions){
		"a process of a server dies every 24 hours, a host every 7 days":                                          func(*choose.Conditions) {},
		"a process of a server dies every 2 days, a host every 119 seconds":                                       func(c *choose.Conditions) { c.ProcessEvery, c.HostEvery = 2*86400, 119 },
		"a process of a server dies every 2 minutes, a host every 2 hours":                                        func(c *choose.Conditions) { c.ProcessEvery, c.HostEvery = 120, 7200 },
		"; all servers are on one host, where a replica outlives no more than memory outside the process":         func(c *choose.Conditions) { c.Hosts = 1 },
		"checkpoint costs 0.099 % while nothing fails and 0.11 % for failures; scar would cost 2 % and 0.014 %; ": func(*choose.Conditions) {},
		"chain with 2 replicas costs ": func(c *choose.Conditions) { c.HostEvery, c.Network, c.Restart, c.Step = 3600, 1e10, 120, 5 },
	} {
		x := cluster()
		change(&x)
		if got := choose.Choose(x, nil, nil).Why; !strings.Contains(got, says) {
			t.Errorf("why: %s\nwant it to say %s", got, says)
		}
	}
	x := cluster()
	x.Hosts, x.Most = 1, 1
	if got := choose.Choose(x, nil, nil).Why; strings.Contains(got, "one host") {
		t.Errorf("replicas are no choice, and it says %s", got)
	}
}

// Young's formula, for the one option for which it is known.
func TestFullCheckpointsAreAsFarApartAsYoungSays(t *testing.T) {
	c := cluster()
	c.HostEvery = math.Inf(1)
	got := choose.Choose(c, []choose.Option{{Replicas: 1}}, nil)
	save := 0.1 * c.State / 4 / c.Store // a tenth of a save: by that much steps beside it are longer
	if want := int(math.Round(math.Sqrt(2 * save * c.ProcessEvery))); got.Every < want-1 || got.Every > want+1 {
		t.Errorf("a checkpoint each %d steps, want %d", got.Every, want)
	}
}

// More failures never cost less, nothing is chosen because it became dearer, and the choice costs
// least of all options.
func TestCostsGrowWithWhatIsBad(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	log := func(lo, hi float64) float64 { return lo * math.Exp(rng.Float64()*math.Log(hi/lo)) }
	for range 3000 {
		c := choose.Conditions{
			Servers: 1 + rng.IntN(16), Workers: 1 + rng.IntN(64), Hosts: 1, Model: log(1e4, 1e10), Step: log(1e-3, 60),
			ProcessEvery: log(60, 1e7), HostEvery: log(600, 1e8), Network: log(1e7, 1e11), Memory: log(1e9, 1e11), Store: log(1e6, 1e10),
			Restart: log(0.05, 300), Failover: log(0.05, 10), Rework: log(0.1, 1000), Together: rng.Float64() / 4, Outside: rng.IntN(2) == 0, Most: 1 + rng.IntN(3),
			ServerHour: rng.Float64(), WorkerHour: rng.Float64(), PerByte: log(1e-13, 1e-9) * float64(rng.IntN(2)),
		}
		c.State = c.Model * float64(1+rng.IntN(3))
		if rng.IntN(2) == 0 {
			c.Hosts = c.Servers
		}
		got := choose.Choose(c, nil, nil)
		for _, x := range got.All {
			if x.PerHour < got.PerHour || math.IsNaN(x.PerHour) {
				t.Fatalf("%+v: chosen %+v, cheaper is %+v", c, got.Cost, x)
			}
		}
		for _, worse := range []func(*choose.Conditions){
			func(c *choose.Conditions) { c.ProcessEvery /= 2 },
			func(c *choose.Conditions) { c.HostEvery /= 2 },
			func(c *choose.Conditions) { c.Restart *= 2 },
			func(c *choose.Conditions) { c.Network /= 2 },
			func(c *choose.Conditions) { c.PerByte *= 2 },
		} {
			bad := c
			worse(&bad)
			if after := choose.Choose(bad, nil, nil); after.PerHour < got.PerHour*(1-1e-9) {
				t.Fatalf("%+v costs %v, and with more trouble %+v %v", c, got.PerHour, bad, after.PerHour)
			}
		}
	}
}

func TestAChoiceDoesNotSwing(t *testing.T) {
	c := cluster()
	best := choose.Choose(c, nil, nil)
	second := best.All[1]
	stays := choose.Choose(c, nil, &second.Option)
	if change := best.PerHour <= 0.9*second.PerHour; change != (stays.Option == best.Option) {
		t.Errorf("%v for %v, it was %v: %+v", best.PerHour, best.Option, second.PerHour, stays.Cost)
	}
	if again := choose.Choose(c, nil, &best.Option); again.Option != best.Option {
		t.Errorf("%+v after %+v", again.Option, best.Option)
	}
}

func TestARateIsNotZeroBecauseNothingHasFailedYet(t *testing.T) {
	if got := choose.Rate(0, 0, 1000); got != 1000 {
		t.Errorf("at first %v", got)
	}
	if got := choose.Rate(9, 9000, 1000); got != 1000 {
		t.Errorf("as expected: %v", got)
	}
	if got := choose.Rate(99, 99, 1000); got > 11 {
		t.Errorf("very often: %v", got)
	}
}
