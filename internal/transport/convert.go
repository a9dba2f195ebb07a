package transport

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Each pair of functions below converts one message. TestMessagesSurviveTheWire fills every field
// of every message, so it finds a field that is missing in one of them.

func each[A, B any](list []A, f func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

func pushTo(p kintsugi.PushID) *pb.PushID {
	return &pb.PushID{Line: uint64(p.Line), Slot: uint32(p.Slot), Incarnation: uint64(p.Incarnation), Version: uint64(p.Version), Sequence: p.Sequence}
}

func pushFrom(p *pb.PushID) kintsugi.PushID {
	return kintsugi.PushID{Line: kintsugi.Line(p.GetLine()), Slot: kintsugi.Slot(p.GetSlot()), Incarnation: kintsugi.Incarnation(p.GetIncarnation()),
		Version: kintsugi.Step(p.GetVersion()), Sequence: p.GetSequence()}
}

func helloTo(m kintsugi.Hello) *pb.Hello {
	return &pb.Hello{Protocol: m.Protocol, Model: m.Model, Line: uint64(m.Line), Slot: uint32(m.Slot), Incarnation: uint64(m.Incarnation),
		Kept: m.Kept, Oldest: uint64(m.Oldest), View: uint64(m.View)}
}

func helloFrom(m *pb.Hello) kintsugi.Hello {
	return kintsugi.Hello{Protocol: m.Protocol, Model: m.Model, Line: kintsugi.Line(m.Line), Slot: kintsugi.Slot(m.Slot), Incarnation: kintsugi.Incarnation(m.Incarnation),
		Kept: m.Kept, Oldest: kintsugi.Step(m.Oldest), View: kintsugi.ViewNumber(m.View)}
}

func ticketTo(m kintsugi.Ticket) *pb.Ticket {
	return &pb.Ticket{
		Push: pushTo(m.Push), Views: each(m.Views, func(v kintsugi.ViewNumber) uint64 { return uint64(v) }),
		Loss: m.Loss, Examples: m.Examples, SquaredNorm: m.SquaredNorm,
		Along: alongTo(m.Along), ComputeNanos: int64(m.Compute), TransferNanos: int64(m.Transfer), Spans: spansTo(m.Spans), Kept: m.Kept,
	}
}

func ticketFrom(m *pb.Ticket) kintsugi.Ticket {
	return kintsugi.Ticket{
		Push: pushFrom(m.Push), Views: each(m.Views, func(v uint64) kintsugi.ViewNumber { return kintsugi.ViewNumber(v) }),
		Loss: m.Loss, Examples: m.Examples, SquaredNorm: m.SquaredNorm,
		Compute: time.Duration(m.ComputeNanos), Transfer: time.Duration(m.TransferNanos), Spans: spansFrom(m.Spans), Along: alongFrom(m.Along), Kept: m.Kept,
	}
}

func spansTo(s kintsugi.Spans) *pb.Spans {
	return &pb.Spans{WaitNanos: int64(s.Wait), PullNanos: int64(s.Pull), EncodeNanos: int64(s.Encode), SendNanos: int64(s.Send), HiddenNanos: int64(s.Hidden)}
}

func spansFrom(s *pb.Spans) kintsugi.Spans {
	return kintsugi.Spans{Wait: time.Duration(s.GetWaitNanos()), Pull: time.Duration(s.GetPullNanos()),
		Encode: time.Duration(s.GetEncodeNanos()), Send: time.Duration(s.GetSendNanos()), Hidden: time.Duration(s.GetHiddenNanos())}
}

// alongTo returns nil if nothing was measured, which is usual: the field then takes no bytes.
func alongTo(a kintsugi.Along) *pb.Along {
	if a == (kintsugi.Along{}) {
		return nil
	}
	return &pb.Along{Known: a.Known, Dot: a.Dot, Earlier: a.Earlier, Before: a.Before, Own: a.Own}
}

func alongFrom(a *pb.Along) kintsugi.Along {
	return kintsugi.Along{Known: a.GetKnown(), Dot: a.GetDot(), Earlier: a.GetEarlier(), Before: a.GetBefore(), Own: a.GetOwn()}
}

func countableTo(c kintsugi.Countable) *pb.Countable {
	return &pb.Countable{
		Slot: uint32(c.Slot), Incarnation: uint64(c.Incarnation), Oldest: uint64(c.Oldest), Version: uint64(c.Version), Next: c.Next, Earlier: each(c.Earlier, countedTo),
	}
}

func countableFrom(c *pb.Countable) kintsugi.Countable {
	return kintsugi.Countable{
		Slot: kintsugi.Slot(c.Slot), Incarnation: kintsugi.Incarnation(c.Incarnation), Oldest: kintsugi.Step(c.Oldest), Version: kintsugi.Step(c.Version), Next: c.Next,
		Earlier: each(c.Earlier, countedFrom),
	}
}

func countedTo(c kintsugi.Counted) *pb.Counted {
	return &pb.Counted{Version: uint64(c.Version), Sequence: c.Sequence}
}

func countedFrom(c *pb.Counted) kintsugi.Counted {
	return kintsugi.Counted{Version: kintsugi.Step(c.Version), Sequence: c.Sequence}
}

func weightedTo(w kintsugi.Weighted) *pb.Weighted {
	return &pb.Weighted{Push: pushTo(w.Push), Weight: w.Weight}
}

func weightedFrom(w *pb.Weighted) kintsugi.Weighted {
	return kintsugi.Weighted{Push: pushFrom(w.Push), Weight: w.Weight}
}

func optimizerTo(o kintsugi.Optimizer) *pb.Optimizer {
	return &pb.Optimizer{Rule: uint32(o.Rule), LearningRate: o.LearningRate, Momentum: o.Momentum, Beta1: o.Beta1, Beta2: o.Beta2,
		Epsilon: o.Epsilon, WeightDecay: o.WeightDecay, Correction1: o.Correction1, Correction2: o.Correction2, DecayMatrices: o.DecayMatrices}
}

func optimizerFrom(o *pb.Optimizer) kintsugi.Optimizer {
	return kintsugi.Optimizer{Rule: kintsugi.Rule(o.GetRule()), LearningRate: o.GetLearningRate(), Momentum: o.GetMomentum(), Beta1: o.GetBeta1(), Beta2: o.GetBeta2(),
		Epsilon: o.GetEpsilon(), WeightDecay: o.GetWeightDecay(), Correction1: o.GetCorrection1(), Correction2: o.GetCorrection2(), DecayMatrices: o.GetDecayMatrices()}
}

func commitTo(m kintsugi.Commit) *pb.Commit {
	return &pb.Commit{
		Line: uint64(m.Line), Fence: uint64(m.Fence), Decided: uint64(m.Decided), Step: uint64(m.Step),
		Counted: each(m.Counted, weightedTo), Scale: m.Scale, Optimizer: optimizerTo(m.Optimizer),
		Countable: each(m.Countable, countableTo), Want: uint32(m.Want),
	}
}

func commitFrom(m *pb.Commit) kintsugi.Commit {
	return kintsugi.Commit{
		Line: kintsugi.Line(m.Line), Fence: kintsugi.Fence(m.Fence), Decided: kintsugi.Fence(m.Decided), Step: kintsugi.Step(m.Step),
		Counted: each(m.Counted, weightedFrom), Scale: m.Scale, Optimizer: optimizerFrom(m.Optimizer),
		Countable: each(m.Countable, countableFrom), Want: kintsugi.Want(m.Want),
	}
}

func releasedTo(m kintsugi.Released) *pb.Released {
	return &pb.Released{Line: uint64(m.Line), Fence: uint64(m.Fence), Step: uint64(m.Step), Counted: each(m.Counted, pushTo), Save: m.Save,
		Run: each(m.Run, func(c kintsugi.ChunkID) uint32 { return uint32(c) }), Want: uint32(m.Want)}
}

func releasedFrom(m *pb.Released) kintsugi.Released {
	return kintsugi.Released{Line: kintsugi.Line(m.Line), Fence: kintsugi.Fence(m.Fence), Step: kintsugi.Step(m.Step), Counted: each(m.Counted, pushFrom), Save: m.Save,
		Run: each(m.Run, func(c uint32) kintsugi.ChunkID { return kintsugi.ChunkID(c) }), Want: kintsugi.Want(m.Want)}
}

func refusedTo(m kintsugi.Refused) *pb.Refused {
	return &pb.Refused{Push: pushTo(m.Push), Step: uint64(m.Step), Reason: m.Reason}
}

func refusedFrom(m *pb.Refused) kintsugi.Refused {
	return kintsugi.Refused{Push: pushFrom(m.Push), Step: kintsugi.Step(m.Step), Reason: m.Reason}
}

func doneTo(m kintsugi.Done) *pb.Done {
	return &pb.Done{Step: uint64(m.Step), Reason: m.Reason, Saved: m.Saved}
}

func doneFrom(m *pb.Done) kintsugi.Done {
	return kintsugi.Done{Step: kintsugi.Step(m.Step), Reason: m.Reason, Saved: m.Saved}
}

func stableTo(m kintsugi.Stable) *pb.Stable {
	s := &pb.Stable{Shard: uint32(m.Shard), Fence: uint64(m.Fence), Step: uint64(m.Step), ApplyNanos: int64(m.Apply), Pushed: m.Pushed, Pulled: m.Pulled,
		SavingNanos: int64(m.Saving), Decided: uint64(m.Decided), PublishNanos: int64(m.Publish), AheadNanos: int64(m.Ahead), Waits: m.Waits}
	var extra, saved, touched bool
	for _, p := range m.Products {
		s.SquaredNorm = append(s.SquaredNorm, p.SquaredNorm)
		s.DotDisplacement = append(s.DotDisplacement, p.DotDisplacement)
		s.SquaredDisplacement = append(s.SquaredDisplacement, p.SquaredDisplacement)
		s.SquaredSaved = append(s.SquaredSaved, p.SquaredSaved)
		s.DotSaved = append(s.DotSaved, p.DotSaved)
		s.Touched = append(s.Touched, p.Touched)
		extra = extra || p.DotDisplacement != 0 || p.SquaredDisplacement != 0
		saved = saved || p.SquaredSaved != 0 || p.DotSaved != 0
		touched = touched || p.Touched != 0
	}
	if !extra {
		s.DotDisplacement, s.SquaredDisplacement = nil, nil
	}
	if !saved {
		s.SquaredSaved, s.DotSaved = nil, nil
	}
	if !touched {
		s.Touched = nil
	}
	return s
}

func stableFrom(m *pb.Stable) kintsugi.Stable {
	s := kintsugi.Stable{Shard: kintsugi.ShardID(m.Shard), Fence: kintsugi.Fence(m.Fence), Step: kintsugi.Step(m.Step),
		Apply: time.Duration(m.ApplyNanos), Pushed: m.Pushed, Pulled: m.Pulled, Saving: time.Duration(m.SavingNanos), Decided: kintsugi.Fence(m.Decided),
		Publish: time.Duration(m.PublishNanos), Ahead: time.Duration(m.AheadNanos), Waits: m.Waits}
	for i, norm := range m.SquaredNorm {
		p := kintsugi.Products{SquaredNorm: norm}
		if i < len(m.DotDisplacement) {
			p.DotDisplacement = m.DotDisplacement[i]
		}
		if i < len(m.SquaredDisplacement) {
			p.SquaredDisplacement = m.SquaredDisplacement[i]
		}
		if i < len(m.SquaredSaved) {
			p.SquaredSaved = m.SquaredSaved[i]
		}
		if i < len(m.DotSaved) {
			p.DotSaved = m.DotSaved[i]
		}
		if i < len(m.Touched) {
			p.Touched = m.Touched[i]
		}
		s.Products = append(s.Products, p)
	}
	return s
}

func savedTo(m kintsugi.Saved) *pb.Saved {
	return &pb.Saved{Shard: uint32(m.Shard), Step: uint64(m.Step), Manifest: m.Manifest, Bytes: m.Bytes, TookNanos: int64(m.Took), Err: m.Err,
		Running: m.Running, Chunks: m.Chunks}
}

func savedFrom(m *pb.Saved) kintsugi.Saved {
	return kintsugi.Saved{Shard: kintsugi.ShardID(m.Shard), Step: kintsugi.Step(m.Step), Manifest: m.Manifest, Bytes: m.Bytes, Took: time.Duration(m.TookNanos), Err: m.Err,
		Running: m.Running, Chunks: m.Chunks}
}

func takenTo(m kintsugi.Taken) *pb.Taken {
	return &pb.Taken{Shard: uint32(m.Shard), Fence: uint64(m.Fence), Applied: uint64(m.Applied), Released: uint64(m.Released), Records: each(m.Records, commitTo),
		Standing: uint32(m.Standing), Saved: each(m.Saved, func(s kintsugi.Step) uint64 { return uint64(s) }),
		Lacks: each(m.Lacks, pushTo)}
}

func takenFrom(m *pb.Taken) kintsugi.Taken {
	return kintsugi.Taken{Shard: kintsugi.ShardID(m.Shard), Fence: kintsugi.Fence(m.Fence), Applied: kintsugi.Step(m.Applied), Released: kintsugi.Step(m.Released),
		Records: each(m.Records, commitFrom), Standing: kintsugi.Standing(m.Standing), Saved: each(m.Saved, func(s uint64) kintsugi.Step { return kintsugi.Step(s) }),
		Lacks: each(m.Lacks, pushFrom)}
}

func takeTo(m kintsugi.Take) *pb.Take {
	return &pb.Take{Line: uint64(m.Line), View: uint64(m.View), Fence: uint64(m.Fence)}
}

func takeFrom(m *pb.Take) kintsugi.Take {
	return kintsugi.Take{Line: kintsugi.Line(m.Line), View: kintsugi.ViewNumber(m.View), Fence: kintsugi.Fence(m.Fence)}
}

func followTo(m kintsugi.Follow) *pb.Follow {
	return &pb.Follow{Line: uint64(m.Line), View: uint64(m.View), Shard: uint32(m.Shard), Server: uint32(m.Server),
		Whole: m.Whole, Released: uint64(m.Released), Applied: uint64(m.Applied), Decided: uint64(m.Decided), Attempt: m.Attempt}
}

func followFrom(m *pb.Follow) kintsugi.Follow {
	return kintsugi.Follow{Line: kintsugi.Line(m.Line), View: kintsugi.ViewNumber(m.View), Shard: kintsugi.ShardID(m.Shard), Server: kintsugi.ServerID(m.Server),
		Whole: m.Whole, Released: kintsugi.Step(m.Released), Applied: kintsugi.Step(m.Applied), Decided: kintsugi.Fence(m.Decided), Attempt: m.Attempt}
}

func snapshotTo(m kintsugi.Snapshot) *pb.Snapshot {
	return &pb.Snapshot{Step: uint64(m.Step), Records: each(m.Records, commitTo), Taken: m.Taken}
}

func snapshotFrom(m *pb.Snapshot) kintsugi.Snapshot {
	return kintsugi.Snapshot{Step: kintsugi.Step(m.Step), Records: each(m.Records, commitFrom), Taken: m.Taken}
}

func stepEventTo(m kintsugi.StepEvent) *pb.StepEvent {
	return &pb.StepEvent{
		Line: uint64(m.Line), Step: uint64(m.Step), TimeUnixNanos: m.Time.UnixNano(), Loss: m.Loss, Counted: each(m.Counted, pushTo),
		Workers: m.Workers, Quota: m.Quota, Reason: m.Reason, Staleness: m.Staleness, Late: m.Late, Examples: m.Examples, Norm: m.Norm,
		WaitNanos: int64(m.Wait), ApplyNanos: int64(m.Apply), Pushed: m.Pushed, Pulled: m.Pulled, Times: each(m.Times, timeTo),
		SavingNanos: int64(m.Saving),
		Kept:        m.Kept, Dropped: m.Dropped, Timeline: timelineTo(m.Timeline), Clipped: m.Clipped,
	}
}

func stepEventFrom(m *pb.StepEvent) kintsugi.StepEvent {
	return kintsugi.StepEvent{
		Line: kintsugi.Line(m.Line), Step: kintsugi.Step(m.Step), Time: time.Unix(0, m.TimeUnixNanos), Loss: m.Loss, Counted: each(m.Counted, pushFrom),
		Workers: m.Workers, Quota: m.Quota, Reason: m.Reason, Staleness: m.Staleness, Late: m.Late, Examples: m.Examples, Norm: m.Norm,
		Wait: time.Duration(m.WaitNanos), Apply: time.Duration(m.ApplyNanos), Pushed: m.Pushed, Pulled: m.Pulled, Times: each(m.Times, timeFrom),
		Saving: time.Duration(m.SavingNanos),
		Kept:   m.Kept, Dropped: m.Dropped, Timeline: timelineFrom(m.Timeline), Clipped: m.Clipped,
	}
}

func timelineTo(t *kintsugi.Timeline) *pb.Timeline {
	if t == nil {
		return nil
	}
	return &pb.Timeline{
		Workers: each(t.Workers, func(w kintsugi.WorkerTime) *pb.WorkerTime {
			return &pb.WorkerTime{Slot: uint32(w.Slot), ToldNanos: int64(w.Told), ComputeNanos: int64(w.Compute), TransferNanos: int64(w.Transfer), Spans: spansTo(w.Spans)}
		}),
		Shards: each(t.Shards, func(s kintsugi.ShardTime) *pb.ShardTime {
			return &pb.ShardTime{Shard: uint32(s.Shard), ToldNanos: int64(s.Told), ApplyNanos: int64(s.Apply), PublishNanos: int64(s.Publish),
				AheadNanos: int64(s.Ahead)}
		}),
	}
}

func timelineFrom(t *pb.Timeline) *kintsugi.Timeline {
	if t == nil {
		return nil
	}
	return &kintsugi.Timeline{
		Workers: each(t.Workers, func(w *pb.WorkerTime) kintsugi.WorkerTime {
			return kintsugi.WorkerTime{Slot: kintsugi.Slot(w.GetSlot()), Told: time.Duration(w.GetToldNanos()), Compute: time.Duration(w.GetComputeNanos()),
				Transfer: time.Duration(w.GetTransferNanos()), Spans: spansFrom(w.GetSpans())}
		}),
		Shards: each(t.Shards, func(s *pb.ShardTime) kintsugi.ShardTime {
			return kintsugi.ShardTime{Shard: kintsugi.ShardID(s.GetShard()), Told: time.Duration(s.GetToldNanos()), Apply: time.Duration(s.GetApplyNanos()),
				Publish: time.Duration(s.GetPublishNanos()), Ahead: time.Duration(s.GetAheadNanos())}
		}),
	}
}

func timeTo(t kintsugi.GradientTime) *pb.GradientTime {
	return &pb.GradientTime{Slot: uint32(t.Slot), ComputeNanos: int64(t.Compute), TransferNanos: int64(t.Transfer), Fate: uint32(t.Fate)}
}

func timeFrom(t *pb.GradientTime) kintsugi.GradientTime {
	return kintsugi.GradientTime{Slot: kintsugi.Slot(t.Slot), Compute: time.Duration(t.ComputeNanos), Transfer: time.Duration(t.TransferNanos), Fate: kintsugi.Fate(t.Fate)}
}

func checkpointTo(m kintsugi.CheckpointEvent) *pb.CheckpointEvent {
	return &pb.CheckpointEvent{Line: uint64(m.Line), Step: uint64(m.Step), Manifest: m.Manifest, Bytes: m.Bytes, TookNanos: int64(m.Took), Err: m.Err,
		Running: m.Running, Shard: uint32(m.Shard), Chunks: m.Chunks, Distance: m.Distance}
}

func checkpointFrom(m *pb.CheckpointEvent) kintsugi.CheckpointEvent {
	return kintsugi.CheckpointEvent{Line: kintsugi.Line(m.Line), Step: kintsugi.Step(m.Step), Manifest: m.Manifest, Bytes: m.Bytes, Took: time.Duration(m.TookNanos), Err: m.Err,
		Running: m.Running, Shard: kintsugi.ShardID(m.Shard), Chunks: m.Chunks, Distance: m.Distance}
}

func adoptTo(m kintsugi.Adopt) *pb.Adopt {
	return &pb.Adopt{Line: uint64(m.Line), Fence: uint64(m.Fence), Step: uint64(m.Step)}
}

func adoptFrom(m *pb.Adopt) kintsugi.Adopt {
	return kintsugi.Adopt{Line: kintsugi.Line(m.Line), Fence: kintsugi.Fence(m.Fence), Step: kintsugi.Step(m.Step)}
}

func partialTo(m kintsugi.PartialEvent) *pb.PartialEvent {
	return &pb.PartialEvent{Line: uint64(m.Line), Step: uint64(m.Step), Shard: uint32(m.Shard), Chunks: m.Chunks, Oldest: uint64(m.Oldest), Age: m.Age}
}

func partialFrom(m *pb.PartialEvent) kintsugi.PartialEvent {
	return kintsugi.PartialEvent{Line: kintsugi.Line(m.Line), Step: kintsugi.Step(m.Step), Shard: kintsugi.ShardID(m.Shard), Chunks: m.Chunks,
		Oldest: kintsugi.Step(m.Oldest), Age: m.Age}
}

func standTo(m kintsugi.StandEvent) *pb.StandEvent {
	return &pb.StandEvent{Line: uint64(m.Line), Step: uint64(m.Step), TimeUnixNanos: m.Time.UnixNano(), LastsNanos: int64(m.Lasts), Waits: m.Waits}
}

func standFrom(m *pb.StandEvent) kintsugi.StandEvent {
	return kintsugi.StandEvent{Line: kintsugi.Line(m.Line), Step: kintsugi.Step(m.Step), Time: time.Unix(0, m.TimeUnixNanos), Lasts: time.Duration(m.LastsNanos), Waits: m.Waits}
}

func exposureTo(m kintsugi.ExposureEvent) *pb.ExposureEvent {
	return &pb.ExposureEvent{Line: uint64(m.Line), Step: uint64(m.Step), Shards: each(m.Shards, func(x kintsugi.Exposure) *pb.Exposure {
		return &pb.Exposure{Squared: x.Squared, Dot: x.Dot, Chunks: x.Chunks, Age: x.Age}
	})}
}

func exposureFrom(m *pb.ExposureEvent) kintsugi.ExposureEvent {
	return kintsugi.ExposureEvent{Line: kintsugi.Line(m.Line), Step: kintsugi.Step(m.Step), Shards: each(m.Shards, func(x *pb.Exposure) kintsugi.Exposure {
		return kintsugi.Exposure{Squared: x.Squared, Dot: x.Dot, Chunks: x.Chunks, Age: x.Age}
	})}
}
