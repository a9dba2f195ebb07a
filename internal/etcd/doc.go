// Package etcd holds what the processes of a run must agree on: who is there, which view counts, who coordinates.
//
// It is a thin layer over an etcd, embedded in the launcher (Embed), several that hold the same
// keys (Ensemble), or one that somebody else runs. It holds a few small keys per run, never a
// tensor and nothing that changes with every step:
//
//	/kintsugi/<run>/life/<kind>/<index>     how many lives the place has had: the last incarnation
//	/kintsugi/<run>/member/<kind>/<index>   the life that fills the place now; goes when its lease lapses
//	/kintsugi/<run>/left/<kind>/<index>     the newest life of the place that left after a notice
//	/kintsugi/<run>/id                      a random name that no other run has, in whatever etcd
//	/kintsugi/<run>/view                    the current view
//	/kintsugi/<run>/fence                   the largest fence handed out
//	/kintsugi/<run>/waits                   what the coordinator waits for before it can put a view, in words
//	/kintsugi/<run>/standing                the run stands at a durable step, for servers that are about to go
//	/kintsugi/<run>/stop                    somebody wants the run to end
//	/kintsugi/<run>/done                    the run is over
//	/kintsugi/<run>/election/coordinator/…  candidates; no other key may lie here, or a candidate waits on it for ever
//
// A lease says who is probably alive; it cannot say who may write. So whatever must not go backwards
// (view numbers, fences, incarnations) is changed by a transaction that names what it replaces.
//
// # Who changes which key
//
// Without TLS whoever reaches etcd changes what it likes. With it an etcd of ours asks for the role
// of who calls, and has a table of keys.
//
// # When etcd is away
//
// Nothing here ends because etcd does not answer. Reads and writes wait as long as their context allows;
// watches wait and go on from where they were, or from the current value where that has been compacted; a
// Registration takes up its lease again, or a new one. Training goes on in the current view; a failover waits.
// Every exported call is safe for concurrent use.
package etcd
