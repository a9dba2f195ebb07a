// Package race says whether this program was built with the race detector.
//
// Only tests use it: some skip what the detector makes many times slower and what other tests
// cover. A program must not ask, or it would behave differently under the detector.
package race
