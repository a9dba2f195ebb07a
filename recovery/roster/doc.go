// Package roster decides which view of the servers counts: which server holds which shard, and from
// which step a line starts. Begin with the rules below and with State.Decide.
//
// It is a pure core. The shell (recovery.Coordinator) tells it which servers are present, which
// view is the newest and which checkpoint is the newest, and puts the views that it decides on.
// Time and everything else from outside are arguments. Each decision comes with its reason in
// words.
//
// # The rules
//
// The first view is made when all servers have registered. It stands as long as every server in it
// is present in the same life.
//
// With several replicas of each shard, a server that is gone leaves its chains at once, and a
// server that comes joins chains at their ends, in views on the same line. No state is lost, so
// nothing is restored and no server is waited for. That needs, in each chain, a member of the view
// before that has everything of its shard: one that the line began with, or that has said that it
// has caught up. A server that was away is still such a member if no view without it was put,
// because its chains have waited for it.
//
// If replicas have copies that may be some steps old (Config.Copies), only the head of a shard has
// everything. If the head is gone, no server is waited for either: the next replica that has a copy
// becomes the head, on a line that keeps what the heads of the other shards have. The replicas
// behind must first catch up on that line. If the head dies before that, nobody has the shard.
//
// If nobody has a shard any more, and so for every loss with one replica, the view waits until all
// servers are present. The state of the lost processes is gone, and a full restore starts a new
// line: on one line every step is committed once, and going back would commit some of them again.
//
// A server that stays away for longer than Config.MoveAfter is not waited for any more. Shards that
// nobody has come back on other servers, and missing replicas are made anew there, as evenly as
// possible; shards that are somewhere stay there. When the server is back, it is sent the shards
// that belong to it, on the same line. That also holds where shards have one replica: such a shard
// has two until the returned server has everything, and then the server that stood in for it leaves
// the chain. Where the next replica answers, head and next stay, because those behind them may lack
// steps.
//
// If one of two servers says that it does not reach the other, one of the two is left out, if it
// can be spared; see part.
//
// A decision depends on the present state, not on how it came about: on the newest view, on the
// lives that are present, on the revision at which that view was put, and on those at which the
// lives took their places. So a coordinator that starts late, or takes over from one that died,
// decides as the other would have. There is one exception: a coordinator knows how long a server
// has been away only as far as it has seen that itself.
//
// Invariants of the views of a run, in the order in which they are put:
//
//   - Number and Fence grow strictly, and so does Line unless the steps of the view before go on.
//   - A view names, for each server in a chain, a life that was present when it was decided.
//   - On a line, each chain begins with a server that was in it in the view before, as the same
//     life, and servers that stay keep their order. With copies, a chain begins with the same
//     server as long as the line lasts.
//   - When a line begins that restores a checkpoint, shard i has its head on server i and its other
//     replicas on the servers after it, around the ring, as far as they are present; the conductor
//     is the head of shard 0.
//   - A server that is present has the shards that belong to it, or is being sent them.
package roster
