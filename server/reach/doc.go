// Package reach decides whom a server says that it does not reach.
//
// It is a pure core. A connection that breaks is no news: servers die, and the coordinator finds
// that out by itself, sooner than anybody could say. What it cannot find out is that two servers do
// not reach each other while it reaches both. So a server that has tried for a while to reach
// another one, in vain, says so, and tries on until it does; and since a link that comes and goes
// is worse than one that is gone, it says that it reaches the other again only after a while too.
package reach
