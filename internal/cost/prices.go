package cost

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// ByRole is a quantity for each role: nodes, seconds, or prices.
type ByRole struct {
	Coordinator float64 `json:"coordinator"`
	Server      float64 `json:"server"`
	Worker      float64 `json:"worker"`
}

// Sum returns the sum over the roles.
func (a ByRole) Sum() float64 { return a.Coordinator + a.Server + a.Worker }

// Times returns a, multiplied by x.
func (a ByRole) Times(x float64) ByRole { return ByRole{a.Coordinator * x, a.Server * x, a.Worker * x} }

// Plus returns the sums of a and b, role by role.
func (a ByRole) Plus(b ByRole) ByRole {
	return ByRole{a.Coordinator + b.Coordinator, a.Server + b.Server, a.Worker + b.Worker}
}

// dot returns the sum of the products, role by role.
func (a ByRole) dot(b ByRole) float64 {
	return a.Coordinator*b.Coordinator + a.Server*b.Server + a.Worker*b.Worker
}

// of returns a pointer to the quantity of a role, or nil if there is no such role.
func (a *ByRole) of(role string) *float64 {
	switch role {
	case "coordinator":
		return &a.Coordinator
	case "server":
		return &a.Server
	case "worker":
		return &a.Worker
	}
	return nil
}

// Prices are the hourly prices of one node, in any currency. On demand, a node is paid for from the
// beginning to the end of the run. On spot, it is not paid for while its place is empty, but it may
// be taken away.
type Prices struct {
	OnDemand ByRole
	Spot     ByRole
}

// Forms describes the syntax of prices.
const Forms = "ROLE=ON_DEMAND[/SPOT], separated by commas, for coordinator, server and worker, in any currency for an hour of one node"

// Parse parses prices such as "server=0.096/0.035,worker=0.526/0.158". A role that is not named is
// free, as when it shares a machine with another. A role without a spot price has the same price on
// spot. An empty text means that the prices are not known: ok is false. Other text is an ErrUsage.
func Parse(text string) (p Prices, ok bool, err error) {
	if strings.TrimSpace(text) == "" {
		return p, false, nil
	}
	seen := make(map[string]bool)
	for entry := range strings.SplitSeq(text, ",") {
		role, value, found := strings.Cut(strings.TrimSpace(entry), "=")
		demand, spot := p.OnDemand.of(role), p.Spot.of(role)
		if !found || demand == nil || seen[role] {
			return Prices{}, false, fmt.Errorf("%w: price %q: write %s, each role once", kintsugi.ErrUsage, entry, Forms)
		}
		seen[role] = true
		first, second, both := strings.Cut(value, "/")
		if *demand, err = price(first); err != nil {
			return Prices{}, false, err
		}
		*spot = *demand
		if both {
			if *spot, err = price(second); err != nil {
				return Prices{}, false, err
			}
		}
	}
	return p, true, nil
}

// price parses one price.
func price(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= dearest) {
		return 0, fmt.Errorf("%w: price %q: an hour of a node costs a number that is not negative, such as 0.096, and at most %g", kintsugi.ErrUsage, text, dearest)
	}
	return x, nil
}

// dearest is the highest allowed price. With much higher prices a bill would overflow and could not
// be written.
const dearest = 1e15

// String returns the prices in the syntax of Parse, in the order of the roles, without those that
// are free.
func (p Prices) String() string {
	var parts []string
	for _, role := range []string{"coordinator", "server", "worker"} {
		demand, spot := *p.OnDemand.of(role), *p.Spot.of(role)
		if demand == 0 && spot == 0 {
			continue
		}
		text := role + "=" + strconv.FormatFloat(demand, 'f', -1, 64)
		if spot != demand {
			text += "/" + strconv.FormatFloat(spot, 'f', -1, 64)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}
