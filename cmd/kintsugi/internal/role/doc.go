// Package role is the processes of a run: coordinator, server, worker, and the etcd and the memory beside them. Begin
// with [Process], which each of the first three is.
//
// A process joins a run only if it trains the same as the others. It has one place in it, leaves that when it is told
// that its machine goes, and ends when somebody else has its place. The packages recovery, server and worker do the
// work of their roles. Here they get what they need: connections, settings, clocks, stores.
package role
