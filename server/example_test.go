package server_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/server"
)

// The states in which a fault can kill a server: "kill server/0 when saving 3". A server and its
// workers together are in examples/ownmodel, since each of the two packages is of use only with the
// other.
func ExampleStates() {
	for _, s := range server.States() {
		fmt.Println(s)
	}
	// Output:
	// pushing
	// arriving
	// committing
	// publishing
	// saving
	// naming
	// joining
}
