package worker

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// answers is a server that answers reads with the frames that it is given, and nothing else.
type answers struct {
	transport.Handler
	next chan []*transport.Frame
}

func (a answers) Read(s *transport.ReadServer) error {
	for {
		if _, err := s.Recv(); err != nil {
			return nil
		}
		for _, f := range <-a.next {
			if err := s.Send(f); err != nil {
				return err
			}
		}
	}
}

// What a server sends of a version that has changed is set, and the rest stays. An answer that is
// not what it should be is an error, and then the next read asks for the whole version.
func TestChangedValuesAreSet(t *testing.T) {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{9, 40}}, {Name: "b", Shape: []int{3}}})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := answers{next: make(chan []*transport.Frame, 1)}
	s := transport.NewServer(lis, server)
	go func() { _ = s.Serve() }()
	defer s.Stop()
	p, err := transport.Dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()

	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))}
	frame := func(version kintsugi.Step, codec transport.Codec, chunks kintsugi.ChunkRange, payload []byte) *transport.Frame {
		return &transport.Frame{Payload: payload, Header: transport.Header{
			Kind: transport.KindParameters, Codec: codec, Chunks: chunks, Push: kintsugi.PushID{Line: 1, Version: version},
			Bytes: uint32(len(payload)), CRC: transport.Checksum(payload),
		}}
	}
	end := func(version kintsugi.Step) *transport.Frame {
		return &transport.Frame{Header: transport.Header{Kind: transport.KindVersion, Push: kintsugi.PushID{Line: 1, Version: version}, CRC: transport.Checksum(nil)}}
	}
	params, want := make([]float32, l.Values), make([]float32, l.Values)
	for i := range want {
		want[i] = float32(i + 1)
	}
	first := frame(5, 0, all, slices.Clone(kernels.Bytes(want)))
	named := transport.CodecOf(kernels.Sparse32, compress.Plain)
	// Of the last chunk its second value, and of the first one its first two.
	last := all.Hi - 1
	newer := make([]float32, l.Values)
	newer[0], newer[1], newer[l.Chunks[last].Lo+1] = 0, -7, 8
	some := func(i kintsugi.ChunkID, runs ...kernels.Run) []byte {
		return kernels.AppendRuns(nil, newer[l.Chunks[i].Lo:l.Chunks[i].Hi], runs)
	}
	head, tail := some(0, kernels.Run{Hi: 2}), some(last, kernels.Run{Lo: 1, Hi: 2})
	one := func(i kintsugi.ChunkID) kintsugi.ChunkRange { return kintsugi.ChunkRange{Lo: i, Hi: i + 1} }
	broken := frame(6, named, one(0), head)
	broken.CRC++

	for _, c := range []struct {
		name   string
		frames []*transport.Frame
		err    string
	}{
		{"two frames", []*transport.Frame{frame(6, named, one(0), head), frame(6, named, one(last), tail), end(6)}, ""},
		{"nothing", []*transport.Frame{end(6)}, ""},
		{"another checksum", []*transport.Frame{broken}, "CRC32C"},
		{"more than its chunks", []*transport.Frame{frame(6, named, one(0), slices.Concat(head, head))}, "are left of a frame"},
		{"less than its chunks", []*transport.Frame{frame(6, named, kintsugi.ChunkRange{Hi: 2}, head)}, "sparse32 payload"},
		{"values that the chunk has not", []*transport.Frame{frame(6, named, one(last), kernels.AppendRuns(nil, make([]float32, 50), []kernels.Run{{Lo: 45, Hi: 50}}))}, "sparse32 payload"},
		{"chunks out of order", []*transport.Frame{frame(6, named, one(last), tail), frame(6, named, one(0), head)}, "among its"},
		{"another codec", []*transport.Frame{frame(6, transport.CodecOf(kernels.Sparse16, compress.Plain), one(0), head)}, "of kind"},
	} {
		read, err := p.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x := source{layout: l, line: 1, chunks: all, frames: transport.Frames(l, all), read: read, pull: PullDelta, device: kernels.Host, holds: map[*float32]kintsugi.Step{}}
		turn := func(frames ...*transport.Frame) (kintsugi.Step, error) {
			server.next <- frames
			if err := x.ask(params, 0, false); err != nil {
				return 0, err
			}
			return x.land(params)
		}
		if got, err := turn(first); err != nil || got != 5 || !slices.Equal(params, want) {
			t.Fatalf("%s: the first answer is of version %d, %v", c.name, got, err)
		}
		got, err := turn(c.frames...)
		switch {
		case c.err == "" && (err != nil || got != 6):
			t.Errorf("%s: version %d, %v", c.name, got, err)
		case c.err != "" && (!errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: error %v, want one of %q", c.name, err, c.err)
		}
		if _, holds := x.holds[&params[0]]; holds != (c.err == "") {
			t.Errorf("%s: after that it holds the version: %v", c.name, holds)
		}
		changed := slices.Clone(want)
		if len(c.frames) == 3 {
			changed[0], changed[1], changed[l.Chunks[last].Lo+1] = 0, -7, 8
		}
		if c.err == "" && !slices.Equal(params, changed) {
			t.Errorf("%s: the parameters are %v, want %v", c.name, params, changed)
		}
	}
}
