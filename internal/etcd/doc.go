// Package etcd stores what the processes of a run must agree on: who is present, which view counts,
// who coordinates. Begin reading at Client and Dial.
//
// It is a thin layer over etcd: one that is embedded in the launcher (Embed), an ensemble of
// several that hold the same keys (Ensemble), or one that somebody else runs. It stores a few small
// keys per run, never a tensor, and nothing that changes with every step:
//
//	/kintsugi/<run>/life/<kind>/<index>     the newest life of the place: its incarnation, and a mark
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
// A lease says who is probably alive. It cannot decide who may write. So everything that must not
// go back (view numbers, fences, incarnations) is changed by a transaction that names the value it
// replaces.
//
// # Who may change which key
//
// Without TLS, everyone who can reach etcd can change all keys. With TLS, an etcd of this package
// checks the role of the caller against a table of keys.
//
// # When etcd is unavailable
//
// Nothing in this package ends because etcd does not answer. Reads and writes wait as long as their
// context allows. Watches wait, and then continue where they were, or from the current value if
// older ones have been compacted. A Registration takes up its lease again, or gets a new one.
// Training goes on in the current view, but a failover waits. All exported functions are safe for
// concurrent use.
//
// An etcd that comes back without data, or with those of a backup, is something else: a candidate
// has lost its candidacy then, and Client.Emptied and WentBack return. A Registration is Forgotten
// if its life is not in the data. Watches do not notice.
package etcd
