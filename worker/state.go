package worker

// State is what a worker is doing at the moment. A crash has different consequences in each state,
// so Config.Enter is called with every state.
type State string

// The states.
const (
	Pulling   State = "pulling"   // the worker reads parameters
	Computing State = "computing" // the worker computes a gradient
	Pushing   State = "pushing"   // a part of a gradient is on its way to one shard or more
	Waiting   State = "waiting"   // the ticket is sent; the conductor decides the fate of the gradient
)

// States returns all states.
func States() []State { return []State{Pulling, Computing, Pushing, Waiting} }
