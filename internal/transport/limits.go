package transport

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Sizes are the quantities that the length of a run's messages depends on: the number of chunks, of
// workers, and of pushes in a step. Every process that reads such messages has the run's
// configuration. So both sides know the longest possible message, and refuse longer ones. The zero
// value is for processes that neither send nor receive tables: workers and watchers.
type Sizes struct {
	Chunks  int // chunks of the model; one shard may have all of them
	Workers int // workers of the run
	Pushes  int // largest number of pushes that a step can count
}

// Largest sizes of message parts on the wire, in bytes, with the longest varints.
// TestNoMessageOfARunIsTooLong fills every field.
const (
	bytesPerPush   = 96 // a Weighted and a Counted; a PushID takes less
	bytesPerWorker = 64 // a Countable without Earlier
	bytesPerChunk  = 48 // in all tables of a Stable; the tables of Taken, Released and Snapshot are smaller

	// smallBytes is the limit for messages without tables, and for the parts of other messages
	// besides their tables. A ticket has one view for each shard, and takes a hundredth of that.
	smallBytes = HeaderBytes + MaxPayloadBytes

	// toldBytes is the limit for messages from a conductor to workers and watchers, which do not
	// know the sizes of the run. A step of a hundred thousand pushes fits.
	toldBytes = 8 << 20
)

// tables returns the limit on a message between servers, in bytes. A message contains at most three
// commits.
func (s Sizes) tables() int {
	return smallBytes + bytesPerChunk*s.Chunks + 3*(bytesPerPush*s.Pushes+bytesPerWorker*s.Workers)
}

// most returns the limit on a message, in bytes. Messages from workers, readers and watchers are
// small, whatever the model.
func (c codec) most(m any) int {
	switch m.(type) {
	case *pb.ControlMessage, *pb.ReplicaMessage, *pb.FollowerMessage, *Frame:
		return c.sizes.tables()
	case *pb.ConductorMessage, *pb.RunEvent:
		return toldBytes
	}
	return smallBytes
}

// mostPayload returns the limit on the payload of a frame, in bytes. Only records contain tables.
func (c codec) mostPayload(f *Frame) int {
	if f.Kind == KindRecord {
		return c.most(f) - HeaderBytes
	}
	return MaxPayloadBytes
}

// tooLong returns the error for a message that no process of this run could have sent.
func tooLong(m any, bytes, most int) error {
	return fmt.Errorf("%w: %T of %d bytes, at most %d are allowed in this run; %s", kintsugi.ErrCorrupt, m, bytes, most, sameEverywhere)
}

const sameEverywhere = "run the same release with the same configuration everywhere"
