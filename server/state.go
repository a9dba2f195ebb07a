package server

// State is what a part of a server is doing, at the moments at which a crash has different
// consequences. Config.Enter is told of each.
type State string

// The states.
const (
	Pushing    State = "pushing"    // the first bytes of a gradient have arrived
	Arriving   State = "arriving"   // chunks are made of gradients that are arriving, before the step is committed
	Committing State = "committing" // a commit is being applied
	Publishing State = "publishing" // a version has become readable, and nobody knows yet
	Saving     State = "saving"     // a version is being written to the checkpoint
	Naming     State = "naming"     // every shard is saved, and the run manifest is not published yet
	Joining    State = "joining"    // a shard has come from the replica before, and this one is not whole yet
)

// States returns all states.
func States() []State {
	return []State{Pushing, Arriving, Committing, Publishing, Saving, Naming, Joining}
}
