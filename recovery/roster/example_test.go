package roster_test

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

func Example() {
	s, _ := roster.New(roster.Config{Servers: 1})
	now := time.Unix(0, 0) // the caller's clock
	s.Handle(now, roster.Viewed{})
	fmt.Println(s.Decide(now).Reason)

	s.Handle(now, roster.Joined{Member: kintsugi.Member{Server: 0, Incarnation: 1, Address: "10.0.0.1:7000"}, Since: 12})
	if d := s.Decide(now); d.Ask {
		s.Handle(now, roster.Found{Fence: 1}) // no checkpoint yet
	}
	d := s.Decide(now)
	fmt.Println(d.Reason)
	fmt.Println("view", d.View.Number, "line", d.View.Line)
	// Output:
	// waiting for server/0: 0 of 1 server registered
	// the server has registered: all shards start from the initialisation
	// view 1 line 1
}
