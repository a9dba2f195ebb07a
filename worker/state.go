package worker

// State is what a worker is doing at a moment: the moments at which a crash means something else.
// Config.Enter is told of each.
type State string

// The states.
const (
	Pulling   State = "pulling"   // parameters are being fetched
	Computing State = "computing" // a gradient is being computed
	Pushing   State = "pushing"   // a part of a gradient is on its way, to one shard or more
	Waiting   State = "waiting"   // the ticket is out: the conductor decides what becomes of the gradient
)

// States lists them.
func States() []State { return []State{Pulling, Computing, Pushing, Waiting} }
