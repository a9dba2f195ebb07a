package transport

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Sizes are what the messages of a run grow with: what is answered for each chunk, and who is
// counted and countable. Every process that reads such messages has the run's configuration, so
// that both sides know how long they can get, and a longer one is absurd. The zero value is that of
// a process which neither sends nor receives tables: a worker, a watcher.
type Sizes struct {
	Chunks  int // of the model: a shard may have all of them
	Workers int // that the run is made for
	Pushes  int // that a step can count
}

// What messages take of memory on the wire, in bytes, with the longest varints.
// TestNoMessageOfARunIsTooLong fills every field.
const (
	bytesPerPush   = 96 // a Weighted; a PushID takes less
	bytesPerWorker = 64 // a Countable
	bytesPerChunk  = 48 // of all the tables of a Stable; those of Taken, Released and Snapshot take less

	// smallBytes bound what has no tables, and what others have beside theirs. A ticket names a
	// view for each shard, and is a hundredth of that.
	smallBytes = HeaderBytes + MaxPayloadBytes

	// toldBytes bound what a conductor tells workers and watchers: they know no sizes of the run,
	// but believe it. A step of a hundred thousand pushes fits.
	toldBytes = 8 << 20
)

// tables returns how long a message between servers may be. Of commits, at most three travel in one.
func (s Sizes) tables() int {
	return smallBytes + bytesPerChunk*s.Chunks + 3*(bytesPerPush*s.Pushes+bytesPerWorker*s.Workers)
}

// most returns how long a message may be, in bytes. What a worker, a reader or a watcher says stays
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

// mostPayload returns how long the payload of a frame may be. Only records have tables.
func (c codec) mostPayload(f *Frame) int {
	if f.Kind == KindRecord {
		return c.most(f) - HeaderBytes
	}
	return MaxPayloadBytes
}

// tooLong returns the error of a message that nobody of this run can have meant.
func tooLong(m any, bytes, most int) error {
	return fmt.Errorf("%w: %T of %d bytes, at most %d are allowed in this run; %s", kintsugi.ErrCorrupt, m, bytes, most, sameEverywhere)
}

const sameEverywhere = "run the same release with the same configuration everywhere"
