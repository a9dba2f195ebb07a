//go:build race

package sim

const racing = true
