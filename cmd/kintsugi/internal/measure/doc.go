// Package measure is the commands that measure and repeat experiments: bench, reproduce, simulate and tune. They read
// flags, open what is to be measured, and print what package bench has found, as a table, as JSON, or in the format of
// Go's benchmarks.
package measure
