// Package race knows whether this program was built with the race detector.
//
// Only tests ask: some leave out what the detector makes many times slower and others cover. A
// program that asked would be another program under the detector than the one that runs.
package race
