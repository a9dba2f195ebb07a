package launch_test

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// A server is killed at step 500 and comes back five seconds later.
func ExampleSchedule() {
	fault, err := launch.ParseFault("kill server/0 at step 500 for 5s")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := launch.NewSchedule([]launch.Fault{fault})
	for _, seconds := range []int{10, 12, 15, 17} {
		for _, a := range s.Due(500, time.Duration(seconds)*time.Second) {
			fmt.Printf("%ds: %s %s\n", seconds, a.Kind, a.Part)
		}
	}
	// Output:
	// 10s: kill server/0
	// 15s: start server/0
}
