package recovery_test

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi/recovery"
)

// A coordinator asks which checkpoint is newest before it restores a shard. For a run that saves
// none, the answer is an empty name without an error: the initialisation.
func ExampleNoCheckpoints() {
	name, step, line, err := recovery.NoCheckpoints(context.Background(), recovery.Asking{})
	fmt.Printf("%q %d %d %v\n", name, step, line, err)
	// Output: "" 0 0 <nil>
}
