package ledger_test

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ledger"
)

// The loss falls by a hundredth in each step. What would it cost to lose a server now?
func Example() {
	l := ledger.New(50)
	for step := 1; step <= 200; step++ {
		l.Observe(ledger.Step{Step: kintsugi.Step(step), Loss: 2 * math.Pow(0.99, float64(step)), Seconds: 0.1})
	}
	loss := 2 * math.Pow(0.99, 200)
	c := l.Cost(ledger.Server{Server: 2, Restored: ledger.Perturbation{Dot: 0.05 * loss}, Outage: 0.8})
	fmt.Printf("server/%d: %.1f steps, %.1f s\n", c.Server, c.Steps, c.Seconds)
	// Output:
	// server/2: 4.9 steps, 1.3 s
}
