package transport

import (
	"errors"
	"io"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// times returns the values of f for 0 to n − 1.
func times[T any](n int, f func(int) T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = f(i)
	}
	return list
}

// longestPush is a push whose id takes as many bytes as possible.
var longestPush = kintsugi.PushID{Line: math.MaxUint64, Slot: math.MaxUint32, Incarnation: math.MaxUint64, Version: math.MaxUint64, Sequence: math.MaxUint32}

// longest returns messages with tables as long as a run of such sizes can have them, of numbers
// that take as many bytes as possible.
func longest(s Sizes) (between []proto.Message, told kintsugi.Released) {
	products := times(s.Chunks, func(int) kintsugi.Products {
		return kintsugi.Products{SquaredNorm: 1, DotDisplacement: 1, SquaredDisplacement: 1, SquaredSaved: 1, DotSaved: 1, Touched: math.MaxUint32}
	})
	commit := kintsugi.Commit{
		Line: math.MaxUint64, Fence: math.MaxUint64, Decided: math.MaxUint64, Step: math.MaxUint64, Scale: 1, Want: math.MaxUint8,
		Counted: times(s.Pushes, func(int) kintsugi.Weighted { return kintsugi.Weighted{Push: longestPush, Weight: 1} }),
		Countable: times(s.Workers, func(int) kintsugi.Countable {
			c := kintsugi.Countable{Slot: math.MaxUint32, Incarnation: math.MaxUint64, Oldest: math.MaxUint64, Version: math.MaxUint64, Next: math.MaxUint32}
			c.Earlier = times(s.Pushes/s.Workers, func(int) kintsugi.Counted {
				return kintsugi.Counted{Version: math.MaxUint64, Sequence: math.MaxUint32}
			})
			return c
		}),
		Optimizer: kintsugi.Optimizer{Rule: math.MaxUint8, LearningRate: 1, Momentum: 1, Beta1: 1, Beta2: 1, Epsilon: 1, WeightDecay: 1, Correction1: 1, Correction2: 1, DecayMatrices: true},
	}
	stable := kintsugi.Stable{
		Shard: math.MaxUint32, Fence: math.MaxUint64, Step: math.MaxUint64, Decided: math.MaxUint64, Apply: -1, Pushed: math.MaxUint64, Pulled: math.MaxUint64,
		Publish: -1, Saving: -1, Ahead: -1, Products: products,
	}
	taken := kintsugi.Taken{
		Shard: math.MaxUint32, Fence: math.MaxUint64, Applied: math.MaxUint64, Released: math.MaxUint64, Standing: kintsugi.Lost, Records: []kintsugi.Commit{commit, commit, commit},
		Saved: times(s.Chunks, func(int) kintsugi.Step { return math.MaxUint64 }), Lacks: times(s.Pushes, func(int) kintsugi.PushID { return longestPush }),
	}
	told = kintsugi.Released{
		Line: math.MaxUint64, Fence: math.MaxUint64, Step: math.MaxUint64, Save: true, Want: math.MaxUint8, Counted: times(s.Pushes, func(int) kintsugi.PushID { return longestPush }),
	}
	released := told
	released.Run = times(s.Chunks, func(int) kintsugi.ChunkID { return math.MaxUint32 })
	snapshot := kintsugi.Snapshot{Step: math.MaxUint64, Records: []kintsugi.Commit{commit}, Taken: times(s.Chunks, func(int) uint64 { return math.MaxUint64 })}
	members := kintsugi.Members{Line: math.MaxUint64, Fence: math.MaxUint64, Change: math.MaxUint64, Countable: commit.Countable}
	return []proto.Message{
		replicaTo(stable), followerTo(stable), replicaTo(taken), followerTo(taken), controlTo(0, released), controlTo(0, commit), controlTo(0, members),
		chainTo(snapshot), chainTo(kintsugi.Update{Commit: commit}), chainTo(commit), chainTo(released),
	}, told
}

// The length of a message's tables is known beforehand, so longer messages can be refused. The rest
// of a message fits into the smallest limit, which frames need anyway, with room for errors and
// names.
func TestNoMessageOfARunIsTooLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sizes{Chunks: rapid.IntRange(0, 3000).Draw(t, "chunks"), Workers: rapid.IntRange(0, 300).Draw(t, "workers"), Pushes: rapid.IntRange(0, 300).Draw(t, "pushes")}
		between, told := longest(s)
		for _, m := range between {
			if n, most := proto.Size(m), s.tables()-smallBytes+1024; n > most {
				t.Errorf("%v takes %d bytes in a run of %+v, more than %d", m.ProtoReflect().Descriptor().Name(), n, s, most)
			}
		}
		if n := proto.Size(conductorTo(told)); n > 1024+bytesPerPush*s.Pushes {
			t.Errorf("a word to workers takes %d bytes", n)
		}
	})
}

// A shard of thirteen billion values has two hundred thousand chunks, five times as many as a
// message of a MiB has room for. Its tables arrive, through gRPC and through pipes, and in the
// records of a chain.
func TestTablesOfALargeShardArrive(t *testing.T) {
	race.Skip(t)
	sizes := Sizes{Chunks: 200_000, Workers: 4096, Pushes: 16_384}
	fill := func(i int) kintsugi.Products {
		return kintsugi.Products{SquaredNorm: float64(i + 1), DotDisplacement: 2, SquaredDisplacement: 3, SquaredSaved: 4, DotSaved: 5, Touched: kintsugi.MaxChunkValues}
	}
	commit := kintsugi.Commit{
		Line: 1, Fence: 2, Step: 1 << 20,
		Counted: times(sizes.Pushes, func(i int) kintsugi.Weighted { return kintsugi.Weighted{Push: longestPush, Weight: float32(i)} }),
		Countable: times(sizes.Workers, func(i int) kintsugi.Countable {
			return kintsugi.Countable{Slot: kintsugi.Slot(i), Incarnation: 3, Earlier: []kintsugi.Counted{{Version: 1}, {Version: 1, Sequence: 2}}}
		}),
	}
	stable := kintsugi.Stable{Shard: 1, Fence: 2, Step: 3, Products: times(sizes.Chunks, fill)}
	taken := kintsugi.Taken{
		Shard: 1, Fence: 2, Saved: times(sizes.Chunks, func(i int) kintsugi.Step { return kintsugi.Step(1<<28 + i) }), Records: []kintsugi.Commit{commit, commit, commit},
	}
	released := kintsugi.Released{Line: 1, Step: 2, Run: times(sizes.Chunks, func(i int) kintsugi.ChunkID { return kintsugi.ChunkID(i) })}
	snapshot := kintsugi.Snapshot{Step: 1, Records: []kintsugi.Commit{commit}, Taken: times(sizes.Chunks, func(i int) uint64 { return uint64(1<<40 + i) })}

	answers := []kintsugi.ReplicaMessage{stable, taken}
	said := []kintsugi.ControlMessage{released, commit}
	handed := []kintsugi.ChainMessage{snapshot, released, kintsugi.Update{Commit: commit}}
	lis := must[net.Listener](t)(Listen("127.0.0.1:0"))
	_, stop := serving(lis, handler{
		control: func(s *ControlServer) error {
			for _, want := range said {
				if m, err := s.Recv(); err != nil || !reflect.DeepEqual(m.Message, want) {
					t.Errorf("%T arrives at a replica otherwise than it was sent: %v", want, err)
				}
			}
			for _, m := range answers {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		},
		follow: func(s *FollowServer) error {
			for _, m := range handed {
				f, err := Record(m)
				if err == nil {
					err = s.Send(f)
				}
				if err != nil {
					return err
				}
			}
			for _, want := range answers {
				if m, err := s.Recv(); err != nil || !reflect.DeepEqual(any(m), any(want)) {
					t.Errorf("%T arrives at the replica before otherwise than it was sent: %v", want, err)
				}
			}
			return nil
		},
	}, ServeSizes(sizes))
	t.Cleanup(stop)
	for _, near := range []bool{false, true} {
		p := must[*Peer](t)(Dial(lis.Addr().String(), DialSizes(sizes)))
		t.Cleanup(func() { _ = p.Close() })
		if near {
			p.Near()
		}
		s := must[*ControlClient](t)(p.Control(within(t, time.Minute)))
		for _, m := range said {
			if err := s.Send(Control{Message: m}); err != nil {
				_, err = s.Recv()
				t.Fatal(err)
			}
		}
		for _, want := range answers {
			if m, err := s.Recv(); err != nil || !reflect.DeepEqual(m, want) {
				t.Fatalf("pipes %v: %T arrives at the conductor otherwise than it was sent: %v", near, want, err)
			}
		}
		f := must[*FollowClient](t)(p.Follow(within(t, time.Minute)))
		for _, want := range handed {
			frame, err := f.Recv()
			if err != nil {
				t.Fatal(err)
			}
			m, err := frame.Message()
			frame.Release()
			if err != nil || !reflect.DeepEqual(m, want) {
				t.Fatalf("%T arrives at the replica after otherwise than it was sent: %v", want, err)
			}
		}
		for _, m := range answers {
			if err := f.Send(m.(kintsugi.FollowerMessage)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Recv(); err != io.EOF {
			t.Fatalf("the stream ends with %v", err)
		}
	}
}

// A message that is too long for the run is refused by its receiver, and both sides get an error
// that says so. The sender refuses it as well. A worker's messages are small, however large the
// model is.
func TestAbsurdMessagesAreRefused(t *testing.T) {
	large, small := Sizes{Chunks: 200_000}, Sizes{Chunks: 4, Workers: 4, Pushes: 4}
	stable := kintsugi.Stable{Products: make([]kintsugi.Products, 200_000)}
	released := kintsugi.Released{Run: times(400_000, func(int) kintsugi.ChunkID { return 1 << 20 })}
	clear := func(t *testing.T, where string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "run the same release with the same configuration everywhere") {
			t.Errorf("%s: %v, want an error that says what to do", where, err)
		}
	}
	hear := func(s *ControlServer) error {
		_, err := s.Recv()
		return err
	}
	answer := handler{
		control: func(s *ControlServer) error {
			if err := s.Send(stable); err != nil {
				return err
			}
			return hear(s)
		},
		work: func(s *WorkServer) error {
			_, err := s.Recv()
			return err
		},
	}
	peer := func(t *testing.T, answer handler, near bool, ours, theirs Sizes) *Peer {
		lis := must[net.Listener](t)(Listen("127.0.0.1:0"))
		_, stop := serving(lis, answer, ServeSizes(theirs))
		t.Cleanup(stop)
		p := must[*Peer](t)(Dial(lis.Addr().String(), DialSizes(ours)))
		t.Cleanup(func() { _ = p.Close() })
		if near {
			p.Near()
		}
		return p
	}
	for _, c := range []struct {
		name string
		near bool
	}{{"gRPC", false}, {"pipes", true}} {
		t.Run(c.name, func(t *testing.T) {
			// The conductor's side refuses what it receives.
			s := must[*ControlClient](t)(peer(t, answer, c.near, small, large).Control(within(t, 10*time.Second)))
			_, err := s.Recv()
			clear(t, "a conductor that receives a table", err)

			// A replica refuses what it would send, and its status says so.
			s = must[*ControlClient](t)(peer(t, answer, c.near, large, small).Control(within(t, 10*time.Second)))
			_, err = s.Recv()
			clear(t, "a conductor whose replica refuses to send", err)

			// A conductor refuses what it would send.
			s = must[*ControlClient](t)(peer(t, answer, c.near, small, small).Control(within(t, 10*time.Second)))
			clear(t, "a conductor that sends", s.Send(Control{Message: released}))

			// A replica refuses what it receives.
			s = must[*ControlClient](t)(peer(t, handler{control: hear}, c.near, large, small).Control(within(t, 10*time.Second)))
			if err := s.Send(Control{Message: released}); err != nil && err != io.EOF { // it may not read to the end
				t.Error(err)
			}
			_, err = s.Recv()
			clear(t, "a conductor whose replica refuses a table", err)

			// A worker's message is not longer for the size of the model.
			w := must[*WorkClient](t)(peer(t, answer, c.near, large, large).Work(within(t, 10*time.Second)))
			clear(t, "a worker that sends", w.Send(kintsugi.Ticket{Views: times(1<<20, func(int) kintsugi.ViewNumber { return 1 << 20 })}))
		})
	}
	// A long message that gRPC has let in, since other streams have longer ones, is not decoded.
	b, err := proto.Marshal(workerTo(kintsugi.Ticket{Views: times(1<<20, func(int) kintsugi.ViewNumber { return 1 << 20 })}))
	if err != nil {
		t.Fatal(err)
	}
	if err := (codec{sizes: large}).Unmarshal(cut(b), workerTo(kintsugi.Ticket{})); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("a long ticket: %v, want %v", err, kintsugi.ErrCorrupt)
	}
	if _, err := (codec{sizes: small}).Marshal(&Frame{Header: Header{Kind: KindRecord}, Payload: make([]byte, small.tables())}); err == nil {
		t.Error("a record that is too long is sent")
	}
	if err := fromWire(status.Error(codes.ResourceExhausted, "too many pings")); strings.Contains(err.Error(), "configuration") {
		t.Errorf("another resource that is exhausted: %v", err)
	}
}
