//go:build !(cuda && cgo && linux)

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "gen: built without -tags cuda")
	os.Exit(1)
}
