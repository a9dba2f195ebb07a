package transport

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// fill sets every field below v to a value that is not zero and, as far as the type allows, does
// not occur twice.
func fill(t *testing.T, v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(0, 1e18+int64(*next))))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), next)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(t, v.Index(i), next)
		}
	case reflect.Uint8:
		v.SetUint(uint64(*next%255) + 1)
	case reflect.Uint32:
		v.SetUint(1<<31 + uint64(*next))
	case reflect.Uint64:
		v.SetUint(1<<63 + uint64(*next))
	case reflect.Int64:
		v.SetInt(1<<62 + int64(*next))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*next) + 0.5)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *next))
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("a message has a field of kind %v: say here how to fill it, and carry it over the wire", v.Kind())
	}
}

// full returns a value of the type of each of like, with every field set.
func full[M any](t *testing.T, like ...M) []M {
	next := 0
	var list []M
	for _, m := range like {
		v := reflect.New(reflect.TypeOf(m)).Elem()
		fill(t, v, &next)
		list = append(list, v.Interface().(M))
	}
	return list
}

// The lists have a value of every type, by direction.
var (
	workerMessages    = []kintsugi.WorkerMessage{kintsugi.Hello{}, kintsugi.Ticket{}}
	conductorMessages = []kintsugi.ConductorMessage{kintsugi.Admitted{}, kintsugi.Released{}, kintsugi.Refused{}, kintsugi.Done{}}
	controlMessages   = []kintsugi.ControlMessage{kintsugi.Take{}, kintsugi.Listen{}, kintsugi.Adopt{}, kintsugi.Members{}, kintsugi.Commit{}, kintsugi.Released{}, kintsugi.Done{}}
	replicaMessages   = []kintsugi.ReplicaMessage{kintsugi.Taken{}, kintsugi.MembersKnown{}, kintsugi.Stable{}, kintsugi.Saved{}}
	chainMessages     = []kintsugi.ChainMessage{kintsugi.Snapshot{}, kintsugi.Joined{}, kintsugi.Take{}, kintsugi.Update{}, kintsugi.Commit{}, kintsugi.Released{}}
	followerMessages  = []kintsugi.FollowerMessage{kintsugi.Follow{}, kintsugi.Taken{}, kintsugi.Stable{}}
	runEvents         = []kintsugi.RunEvent{kintsugi.StepEvent{Time: time.Unix(0, 0)}, kintsugi.CheckpointEvent{}, kintsugi.PartialEvent{}, kintsugi.ExposureEvent{}, kintsugi.StandEvent{Time: time.Unix(0, 0)}, kintsugi.Done{}}
	headMessages      = []kintsugi.HeadMessage{kintsugi.Received{}, kintsugi.Refused{}}
)

// swap sends up from the client and down from the server of a stream, and each side checks what
// arrives.
func swap[Up, Down any](t *testing.T, name string, up []Up, down []Down, serve func(func(*Stream[Down, Up]) error) handler, open func(*Peer) (*Stream[Up, Down], error)) {
	t.Run(name, func(t *testing.T) {
		server := func(s *Stream[Down, Up]) error {
			for _, want := range up {
				got, err := s.Recv()
				if err != nil {
					return err
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("the server got\n%+v, want\n%+v", got, want)
				}
			}
			for _, m := range down {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		}
		_, p := loopback(t, serve(server))
		s, err := open(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range up {
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range down {
			got, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the client got\n%+v, want\n%+v", got, want)
			}
		}
	})
}

// Every field of every message arrives as it was sent, on the stream that carries it. Zero values
// arrive too: nothing depends on a field being set.
func TestMessagesSurviveTheWire(t *testing.T) {
	ctx := within(t, 30*time.Second)
	controls := func(list []kintsugi.ControlMessage) []Control {
		return each(list, func(m kintsugi.ControlMessage) Control { return Control{Shard: 7, Message: m} })
	}
	swap(t, "work", slices.Concat(full(t, workerMessages...), workerMessages), slices.Concat(full(t, conductorMessages...), conductorMessages),
		func(f func(*WorkServer) error) handler { return handler{work: f} },
		func(p *Peer) (*WorkClient, error) { return p.Work(ctx) })
	swap(t, "watch", full(t, WatchRequest{}), slices.Concat(full(t, runEvents...), runEvents),
		func(f func(*WatchServer) error) handler { return handler{watch: f} },
		func(p *Peer) (*WatchClient, error) { return p.Watch(ctx) })
	swap(t, "control", slices.Concat(controls(full(t, controlMessages...)), controls(controlMessages)), slices.Concat(full(t, replicaMessages...), replicaMessages),
		func(f func(*ControlServer) error) handler { return handler{control: f} },
		func(p *Peer) (*ControlClient, error) { return p.Control(ctx) })
	swap(t, "push", nil, slices.Concat(full(t, headMessages...), headMessages),
		func(f func(*PushServer) error) handler { return handler{push: f} },
		func(p *Peer) (*PushClient, error) { return p.Push(ctx) })
	swap(t, "follow", slices.Concat(full(t, followerMessages...), followerMessages), nil,
		func(f func(*FollowServer) error) handler { return handler{follow: f} },
		func(p *Peer) (*FollowClient, error) { return p.Follow(ctx) })
	swap(t, "read", full(t, ReadRequest{}), nil,
		func(f func(*ReadServer) error) handler { return handler{read: f} },
		func(p *Peer) (*ReadClient, error) { return p.Read(ctx) })
}

// The records of a chain arrive in frames, as they were sent.
func TestRecordsSurviveTheWire(t *testing.T) {
	ctx := within(t, 30*time.Second)
	want := slices.Concat(full(t, chainMessages...), chainMessages)
	_, p := loopback(t, handler{follow: func(s *FollowServer) error {
		for _, m := range want {
			f, err := Record(m)
			if err != nil {
				return err
			}
			if err := s.Send(f); err != nil {
				return err
			}
		}
		return nil
	}})
	s := must[*FollowClient](t)(p.Follow(ctx))
	for _, want := range want {
		f, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Message()
		f.Release()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, %v, want\n%+v", got, err, want)
		}
	}
}

// The lists above have every type that the root package declares for a direction.
func TestNoMessageTypeIsForgotten(t *testing.T) {
	tested := map[string][]string{}
	note := func(direction string, m any) {
		tested[direction] = append(tested[direction], reflect.TypeOf(m).Name())
	}
	for _, m := range workerMessages {
		note("workerMessage", m)
	}
	for _, m := range conductorMessages {
		note("conductorMessage", m)
	}
	for _, m := range controlMessages {
		note("controlMessage", m)
	}
	for _, m := range replicaMessages {
		note("replicaMessage", m)
	}
	for _, m := range runEvents {
		note("runEvent", m)
	}
	for _, m := range headMessages {
		note("headMessage", m)
	}
	for _, m := range chainMessages {
		note("chainMessage", m)
	}
	for _, m := range followerMessages {
		note("followerMessage", m)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && !f.Name.IsExported() { // other methods do not mark a direction
			declared[f.Name.Name] = append(declared[f.Name.Name], f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	if !reflect.DeepEqual(tested, declared) {
		t.Errorf("tested %v\ndeclared %v", tested, declared)
	}
}

// Products with displacements are left out if no chunk has any, since they would double the largest
// message.
func TestUnaskedProductsCostNothing(t *testing.T) {
	m := kintsugi.Stable{Products: []kintsugi.Products{{SquaredNorm: 1}, {SquaredNorm: 2}}}
	if x := stableTo(m); x.DotDisplacement != nil || x.SquaredDisplacement != nil || x.SquaredSaved != nil || x.DotSaved != nil {
		t.Errorf("sent %v", x)
	}
	if got := stableFrom(stableTo(m)); !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, want %+v", got, m)
	}
}

// envelopes decode b as each kind of control message, and encode the result.
var envelopes = []func(b []byte) (proto.Message, error){
	envelope[pb.WorkerMessage](workerFrom, workerTo),
	envelope[pb.ConductorMessage](conductorFrom, conductorTo),
	envelope[pb.ControlMessage](controlDecode, func(c Control) *pb.ControlMessage { return controlTo(c.Shard, c.Message) }),
	envelope[pb.ReplicaMessage](replicaFrom, replicaTo),
	envelope[pb.HeadMessage](headFrom, headTo),
	envelope[pb.RunEvent](eventFrom, eventTo),
	envelope[pb.ChainMessage](chainFrom, chainTo),
	envelope[pb.FollowerMessage](followerFrom, followerTo),
	envelope[pb.ReadRequest](readFrom, readTo),
	envelope[pb.WatchRequest](watchFrom, watchTo),
}

func envelope[P any, PP interface {
	*P
	proto.Message
}, M any](from func(PP) (M, error), to func(M) PP) func([]byte) (proto.Message, error) {
	return func(b []byte) (proto.Message, error) {
		in := PP(new(P))
		if err := (codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, in); err != nil {
			return nil, err
		}
		m, err := from(in)
		if err != nil {
			return nil, err
		}
		return to(m), nil
	}
}

// Any of the products may be zero where others are not. None is lost because of it.
func TestEachProductSurvivesWithoutTheOthers(t *testing.T) {
	for mask := range 1 << 6 {
		on := func(bit int) float64 { return float64(mask>>bit&1) * float64(bit+2) }
		some := kintsugi.Products{
			SquaredNorm: on(0), DotDisplacement: on(1), SquaredDisplacement: on(2), SquaredSaved: on(3), DotSaved: on(4), Touched: uint32(on(5)),
		}
		m := kintsugi.Stable{Shard: 1, Step: 2, Products: []kintsugi.Products{{}, some, {SquaredNorm: 1}}}
		if got := stableFrom(stableTo(m)); !slices.Equal(got.Products, m.Products) {
			t.Errorf("%+v arrives as %+v", m.Products, got.Products)
		}
	}
}

// An envelope without content, as a later release may send it, is refused as such and not as
// damage.
func TestUnknownMessagesAreOfAnotherRelease(t *testing.T) {
	for i, decode := range envelopes[:8] {
		if _, err := decode(nil); !isOtherModel(err) {
			t.Errorf("envelope %d: got %v, want %v", i, err, kintsugi.ErrOtherModel)
		}
	}
}

// FuzzControlPlane: no bytes make a decoder panic, and whatever is decoded can be sent on.
func FuzzControlPlane(f *testing.F) {
	for _, m := range []proto.Message{workerTo(kintsugi.Ticket{Views: []kintsugi.ViewNumber{1, 2}}), controlTo(1, kintsugi.Commit{Counted: make([]kintsugi.Weighted, 2)}),
		replicaTo(kintsugi.Taken{Records: make([]kintsugi.Commit, 2)}), eventTo(kintsugi.StepEvent{Counted: make([]kintsugi.PushID, 2)}),
		chainTo(kintsugi.Snapshot{Records: make([]kintsugi.Commit, 1), Taken: []uint64{3}}), followerTo(kintsugi.Follow{Whole: true})} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, decode := range envelopes {
			m, err := decode(b)
			if err != nil {
				continue
			}
			again, err := proto.Marshal(m)
			if err != nil {
				t.Fatalf("envelope %d: %v", i, err)
			}
			if _, err := decode(again); err != nil {
				t.Fatalf("envelope %d: what was sent on is not understood: %v", i, err)
			}
		}
	})
}

// FuzzReadRecord: no bytes make the reader of a step's record panic. What it reads, written again,
// is read as the same.
func FuzzReadRecord(f *testing.F) {
	b, err := AppendRecord(nil, kintsugi.Commit{Step: 4, Counted: make([]kintsugi.Weighted, 1)}, kintsugi.Stable{Step: 4, Products: []kintsugi.Products{{SquaredNorm: 2}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(b, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, s, rest, err := ReadRecord(b)
		if err != nil {
			if !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Fatalf("got %v, want %v", err, kintsugi.ErrCorrupt)
			}
			return
		}
		once, err := AppendRecord(nil, c, s)
		if err != nil {
			t.Fatal(err)
		}
		c, s, after, err := ReadRecord(append(bytes.Clone(once), rest...))
		if err != nil || !bytes.Equal(after, rest) {
			t.Fatalf("what was read and written again: %v, followed by %x, want %x", err, after, rest)
		}
		if twice, err := AppendRecord(nil, c, s); err != nil || !bytes.Equal(twice, once) {
			t.Fatalf("%x, written again: %x, %v", once, twice, err)
		}
	})
}
