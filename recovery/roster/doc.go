// Package roster decides which view of the servers counts: who holds which shard, and from which step a line starts.
//
// It is a pure core: the shell (recovery.Coordinator) tells it who is present, which view counts and which
// checkpoint is newest, and puts the views that it decides on. Time and everything else from outside are
// arguments; each decision comes with its reason in words.
//
// # The rules
//
// The first view is made when all servers have registered. It stands as long as everybody it names is
// present in the same life.
//
// With several replicas of each shard, whoever is gone leaves its chains at once and whoever comes
// joins them at their ends, in views on the same line: nothing is lost, so nothing is restored and
// nobody is waited for. That needs a member of the view before in each chain that has everything of
// its shard: one that the line began with, or that has said that it has caught up. A server that
// was away is one as long as no view without it was put: its chains have waited for it.
//
// Where replicas have copies that may be some steps old (Config.Copies), only the head of a shard
// has everything. When it is gone nobody is waited for either: the next one that has a copy is the
// head, on a line that keeps what the heads of the other shards have. Whoever follows has to catch
// up on that line first; a head that dies before leaves its shard to nobody.
//
// Where a shard has nobody left, and so for every loss with one replica, the view waits until all are there. What they
// held is gone, and a full restore starts a new line: on one line every step is committed once, and going back would
// commit some of them again.
//
// A server that stays away for longer than Config.MoveAfter is not waited for any more. Shards that
// nobody has then come back on other servers, and replicas that are missing are made anew there, as
// evenly as can be; what is anywhere stays there. When the server is back it is sent what belongs
// to it, on the same line, also where shards have one replica: for that long such a shard has two,
// and who stood in lets go as soon as the other one has everything. Where the next replica answers,
// head and next stay: those behind them may lack steps.
//
// Of two servers that do not reach each other, by the word of one of them, one is left out as long
// as it can be spared; see part.
//
// A decision depends on what is, not on how it came about: the view that counts, the lives that are
// present, and the revisions at which the one was put and the others filled their places. So a
// coordinator that starts late, or takes over from one that died, decides as the other would have;
// but for how long somebody has been away it knows only what it has seen.
//
// Invariants of the views of a run, in the order in which they are put:
//
//   - Number and Fence grow strictly, and Line unless the steps of the view before go on.
//   - A view names, for each server in a chain, a life that was present when it was decided.
//   - On a line, each chain begins with a server that was in it in the view before, as the same life, and those that
//     stay keep their order. With copies it begins with the same server as long as the line lasts.
//   - When a line begins that restores a checkpoint, shard i has its head on server i and its
//     successors on the servers after it, around the ring, as far as they are there; the conductor
//     is the head of shard 0.
//   - A server that is there has the shards that belong to it, or is being sent them.
package roster
