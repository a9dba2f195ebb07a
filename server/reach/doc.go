// Package reach decides which servers a server reports as out of reach. Begin with State.
//
// It is a pure core. A broken connection is not worth a report: servers die, and the coordinator
// notices that by itself, sooner than a report would arrive. It cannot notice that two servers do
// not reach each other while it reaches both. So a server reports another one after it has tried in
// vain to reach it for a while, and goes on trying. A link that comes and goes is worse than one
// that is gone, so the server also waits for a while before it reports that it reaches the other
// again.
package reach
