package record_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A server dies after step 2. The run goes on from the checkpoint of step 1, and makes step 2
// again.
func ExampleAccount() {
	var a record.Account
	for _, e := range []record.Event{
		&record.Step{At: record.At{Seconds: 1}, Line: 1, Step: 1},
		&record.Step{At: record.At{Seconds: 2}, Line: 1, Step: 2},
		&record.Failure{At: record.At{Seconds: 2.5}, Part: "server/0"},
		&record.Step{At: record.At{Seconds: 6}, Line: 2, Step: 2},
	} {
		a.Add(e)
	}
	s := a.Summary()
	fmt.Printf("lost %d step, released the next after %v s\n", s.Failures[0].LostSteps, s.RecoverySeconds[0])
	// Output: lost 1 step, released the next after 3.5 s
}
