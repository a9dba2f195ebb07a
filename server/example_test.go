package server_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/server"
)

// The states in which a fault can kill a server: "kill server/0 when saving 3". A server together with its
// workers is in examples/ownmodel: each of the two packages needs the other one to have something to do.
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
