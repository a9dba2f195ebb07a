package recovery_test

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi/recovery"
)

// A coordinator asks which checkpoint is newest before a shard comes back. A run that saves none says so: a
// name that is empty, without an error, is the initialisation.
func ExampleNoCheckpoints() {
	name, step, line, err := recovery.NoCheckpoints(context.Background(), recovery.Asking{})
	fmt.Printf("%q %d %d %v\n", name, step, line, err)
	// Output: "" 0 0 <nil>
}
