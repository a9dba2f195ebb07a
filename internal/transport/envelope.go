package transport

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// The envelopes: one oneof for each direction. An empty or unknown one comes from another version
// of the protocol.

var errUnknown = fmt.Errorf("%w: a message of unknown kind arrived", kintsugi.ErrOtherModel)

func workerTo(m kintsugi.WorkerMessage) *pb.WorkerMessage {
	switch m := m.(type) {
	case kintsugi.Hello:
		return &pb.WorkerMessage{Kind: &pb.WorkerMessage_Hello{Hello: helloTo(m)}}
	case kintsugi.Ticket:
		return &pb.WorkerMessage{Kind: &pb.WorkerMessage_Ticket{Ticket: ticketTo(m)}}
	}
	panic(fmt.Sprintf("transport: worker message %T", m))
}

func workerFrom(m *pb.WorkerMessage) (kintsugi.WorkerMessage, error) {
	switch k := m.Kind.(type) {
	case *pb.WorkerMessage_Hello:
		return helloFrom(k.Hello), nil
	case *pb.WorkerMessage_Ticket:
		return ticketFrom(k.Ticket), nil
	}
	return nil, errUnknown
}

func conductorTo(m kintsugi.ConductorMessage) *pb.ConductorMessage {
	switch m := m.(type) {
	case kintsugi.Admitted:
		return &pb.ConductorMessage{Kind: &pb.ConductorMessage_Admitted{Admitted: &pb.Admitted{Line: uint64(m.Line), Step: uint64(m.Step)}}}
	case kintsugi.Released:
		return &pb.ConductorMessage{Kind: &pb.ConductorMessage_Released{Released: releasedTo(m)}}
	case kintsugi.Refused:
		return &pb.ConductorMessage{Kind: &pb.ConductorMessage_Refused{Refused: refusedTo(m)}}
	case kintsugi.Done:
		return &pb.ConductorMessage{Kind: &pb.ConductorMessage_Done{Done: doneTo(m)}}
	}
	panic(fmt.Sprintf("transport: conductor message %T", m))
}

func conductorFrom(m *pb.ConductorMessage) (kintsugi.ConductorMessage, error) {
	switch k := m.Kind.(type) {
	case *pb.ConductorMessage_Admitted:
		return kintsugi.Admitted{Line: kintsugi.Line(k.Admitted.Line), Step: kintsugi.Step(k.Admitted.Step)}, nil
	case *pb.ConductorMessage_Released:
		return releasedFrom(k.Released), nil
	case *pb.ConductorMessage_Refused:
		return refusedFrom(k.Refused), nil
	case *pb.ConductorMessage_Done:
		return doneFrom(k.Done), nil
	}
	return nil, errUnknown
}

func controlTo(s kintsugi.ShardID, m kintsugi.ControlMessage) *pb.ControlMessage {
	e := &pb.ControlMessage{Shard: uint32(s)}
	switch m := m.(type) {
	case kintsugi.Take:
		e.Kind = &pb.ControlMessage_Take{Take: takeTo(m)}
	case kintsugi.Listen:
		e.Kind = &pb.ControlMessage_Listen{Listen: &pb.Listen{}}
	case kintsugi.Members:
		e.Kind = &pb.ControlMessage_Members{Members: &pb.Members{Line: uint64(m.Line), Fence: uint64(m.Fence), Change: m.Change, Countable: each(m.Countable, countableTo)}}
	case kintsugi.Commit:
		e.Kind = &pb.ControlMessage_Commit{Commit: commitTo(m)}
	case kintsugi.Released:
		e.Kind = &pb.ControlMessage_Released{Released: releasedTo(m)}
	case kintsugi.Done:
		e.Kind = &pb.ControlMessage_Done{Done: doneTo(m)}
	case kintsugi.Adopt:
		e.Kind = &pb.ControlMessage_Adopt{Adopt: adoptTo(m)}
	default:
		panic(fmt.Sprintf("transport: control message %T", m))
	}
	return e
}

func controlFrom(e *pb.ControlMessage) (kintsugi.ShardID, kintsugi.ControlMessage, error) {
	s := kintsugi.ShardID(e.Shard)
	switch k := e.Kind.(type) {
	case *pb.ControlMessage_Take:
		return s, takeFrom(k.Take), nil
	case *pb.ControlMessage_Listen:
		return s, kintsugi.Listen{}, nil
	case *pb.ControlMessage_Members:
		m := k.Members
		return s, kintsugi.Members{Line: kintsugi.Line(m.Line), Fence: kintsugi.Fence(m.Fence), Change: m.Change, Countable: each(m.Countable, countableFrom)}, nil
	case *pb.ControlMessage_Commit:
		return s, commitFrom(k.Commit), nil
	case *pb.ControlMessage_Released:
		return s, releasedFrom(k.Released), nil
	case *pb.ControlMessage_Done:
		return s, doneFrom(k.Done), nil
	case *pb.ControlMessage_Adopt:
		return s, adoptFrom(k.Adopt), nil
	}
	return s, nil, errUnknown
}

func replicaTo(m kintsugi.ReplicaMessage) *pb.ReplicaMessage {
	switch m := m.(type) {
	case kintsugi.Taken:
		return &pb.ReplicaMessage{Kind: &pb.ReplicaMessage_Taken{Taken: takenTo(m)}}
	case kintsugi.MembersKnown:
		return &pb.ReplicaMessage{Kind: &pb.ReplicaMessage_MembersKnown{MembersKnown: &pb.MembersKnown{Shard: uint32(m.Shard), Fence: uint64(m.Fence), Change: m.Change}}}
	case kintsugi.Stable:
		return &pb.ReplicaMessage{Kind: &pb.ReplicaMessage_Stable{Stable: stableTo(m)}}
	case kintsugi.Saved:
		return &pb.ReplicaMessage{Kind: &pb.ReplicaMessage_Saved{Saved: savedTo(m)}}
	}
	panic(fmt.Sprintf("transport: replica message %T", m))
}

func replicaFrom(e *pb.ReplicaMessage) (kintsugi.ReplicaMessage, error) {
	switch k := e.Kind.(type) {
	case *pb.ReplicaMessage_Taken:
		return takenFrom(k.Taken), nil
	case *pb.ReplicaMessage_MembersKnown:
		m := k.MembersKnown
		return kintsugi.MembersKnown{Shard: kintsugi.ShardID(m.Shard), Fence: kintsugi.Fence(m.Fence), Change: m.Change}, nil
	case *pb.ReplicaMessage_Stable:
		return stableFrom(k.Stable), nil
	case *pb.ReplicaMessage_Saved:
		return savedFrom(k.Saved), nil
	}
	return nil, errUnknown
}

func chainTo(m kintsugi.ChainMessage) *pb.ChainMessage {
	switch m := m.(type) {
	case kintsugi.Snapshot:
		return &pb.ChainMessage{Kind: &pb.ChainMessage_Snapshot{Snapshot: snapshotTo(m)}}
	case kintsugi.Joined:
		return &pb.ChainMessage{Kind: &pb.ChainMessage_Joined{Joined: &pb.Joined{}}}
	case kintsugi.Take:
		return &pb.ChainMessage{Kind: &pb.ChainMessage_Take{Take: takeTo(m)}}
	case kintsugi.Update:
		return &pb.ChainMessage{Kind: &pb.ChainMessage_Update{Update: commitTo(m.Commit)}}
	case kintsugi.Commit:
		return &pb.ChainMessage{Kind: &pb.ChainMessage_Commit{Commit: commitTo(m)}}
	case kintsugi.Released:
		return &pb.ChainMessage{Kind: &pb.ChainMessage_Released{Released: releasedTo(m)}}
	}
	panic(fmt.Sprintf("transport: chain message %T", m))
}

func chainFrom(m *pb.ChainMessage) (kintsugi.ChainMessage, error) {
	switch k := m.Kind.(type) {
	case *pb.ChainMessage_Snapshot:
		return snapshotFrom(k.Snapshot), nil
	case *pb.ChainMessage_Joined:
		return kintsugi.Joined{}, nil
	case *pb.ChainMessage_Take:
		return takeFrom(k.Take), nil
	case *pb.ChainMessage_Update:
		return kintsugi.Update{Commit: commitFrom(k.Update)}, nil
	case *pb.ChainMessage_Commit:
		return commitFrom(k.Commit), nil
	case *pb.ChainMessage_Released:
		return releasedFrom(k.Released), nil
	}
	return nil, errUnknown
}

func followerTo(m kintsugi.FollowerMessage) *pb.FollowerMessage {
	switch m := m.(type) {
	case kintsugi.Follow:
		return &pb.FollowerMessage{Kind: &pb.FollowerMessage_Follow{Follow: followTo(m)}}
	case kintsugi.Taken:
		return &pb.FollowerMessage{Kind: &pb.FollowerMessage_Taken{Taken: takenTo(m)}}
	case kintsugi.Stable:
		return &pb.FollowerMessage{Kind: &pb.FollowerMessage_Stable{Stable: stableTo(m)}}
	}
	panic(fmt.Sprintf("transport: follower message %T", m))
}

func followerFrom(m *pb.FollowerMessage) (kintsugi.FollowerMessage, error) {
	switch k := m.Kind.(type) {
	case *pb.FollowerMessage_Follow:
		return followFrom(k.Follow), nil
	case *pb.FollowerMessage_Taken:
		return takenFrom(k.Taken), nil
	case *pb.FollowerMessage_Stable:
		return stableFrom(k.Stable), nil
	}
	return nil, errUnknown
}

func headTo(m kintsugi.HeadMessage) *pb.HeadMessage {
	switch m := m.(type) {
	case kintsugi.Received:
		return &pb.HeadMessage{Kind: &pb.HeadMessage_Received{Received: &pb.Received{Push: pushTo(m.Push), Shard: uint32(m.Shard), View: uint64(m.View)}}}
	case kintsugi.Refused:
		return &pb.HeadMessage{Kind: &pb.HeadMessage_Refused{Refused: refusedTo(m)}}
	}
	panic(fmt.Sprintf("transport: head message %T", m))
}

func headFrom(e *pb.HeadMessage) (kintsugi.HeadMessage, error) {
	switch k := e.Kind.(type) {
	case *pb.HeadMessage_Received:
		m := k.Received
		return kintsugi.Received{Push: pushFrom(m.Push), Shard: kintsugi.ShardID(m.Shard), View: kintsugi.ViewNumber(m.View)}, nil
	case *pb.HeadMessage_Refused:
		return refusedFrom(k.Refused), nil
	}
	return nil, errUnknown
}

func eventTo(m kintsugi.RunEvent) *pb.RunEvent {
	switch m := m.(type) {
	case kintsugi.StepEvent:
		return &pb.RunEvent{Kind: &pb.RunEvent_Step{Step: stepEventTo(m)}}
	case kintsugi.CheckpointEvent:
		return &pb.RunEvent{Kind: &pb.RunEvent_Checkpoint{Checkpoint: checkpointTo(m)}}
	case kintsugi.Done:
		return &pb.RunEvent{Kind: &pb.RunEvent_Done{Done: doneTo(m)}}
	case kintsugi.PartialEvent:
		return &pb.RunEvent{Kind: &pb.RunEvent_Partial{Partial: partialTo(m)}}
	case kintsugi.ExposureEvent:
		return &pb.RunEvent{Kind: &pb.RunEvent_Exposure{Exposure: exposureTo(m)}}
	case kintsugi.StandEvent:
		return &pb.RunEvent{Kind: &pb.RunEvent_Stand{Stand: standTo(m)}}
	}
	panic(fmt.Sprintf("transport: run event %T", m))
}

func eventFrom(e *pb.RunEvent) (kintsugi.RunEvent, error) {
	switch k := e.Kind.(type) {
	case *pb.RunEvent_Step:
		return stepEventFrom(k.Step), nil
	case *pb.RunEvent_Checkpoint:
		return checkpointFrom(k.Checkpoint), nil
	case *pb.RunEvent_Done:
		return doneFrom(k.Done), nil
	case *pb.RunEvent_Partial:
		return partialFrom(k.Partial), nil
	case *pb.RunEvent_Exposure:
		return exposureFrom(k.Exposure), nil
	case *pb.RunEvent_Stand:
		return standFrom(k.Stand), nil
	}
	return nil, errUnknown
}
