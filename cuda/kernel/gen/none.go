//go:build !(gpu && cgo && linux)

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "gen: built without -tags gpu")
	os.Exit(1)
}
