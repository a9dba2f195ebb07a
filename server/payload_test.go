package server_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// encoded returns the frames of a gradient whose values are all v.
func (t *one) encoded(spec string, p kintsugi.PushID, v float32) []*transport.Frame {
	t.Helper()
	c := ok[compress.Codec](t)(compress.Parse(spec))
	var frames []*transport.Frame
	for _, r := range t.frames {
		var payload []byte
		for _, chunk := range t.layout.Chunks[r.Lo:r.Hi] {
			x := make([]float32, chunk.Len())
			for i := range x {
				x[i] = v
			}
			payload = c.Encode(payload, x, nil, 1, 0)
		}
		packed, stage := c.Pack(nil, payload)
		if stage != compress.Plain {
			payload = packed
		}
		frames = append(frames, frameWith(p, r, transport.CodecOf(c.Encoding(), stage), payload))
	}
	return frames
}

func frameWith(p kintsugi.PushID, r kintsugi.ChunkRange, c transport.Codec, payload []byte) *transport.Frame {
	return &transport.Frame{Payload: payload, Header: transport.Header{
		Kind: transport.KindPush, Codec: c, Push: p, Chunks: r, Bytes: uint32(len(payload)), CRC: transport.Checksum(payload),
	}}
}

func (t *one) sendFrames(s *transport.PushClient, frames ...*transport.Frame) {
	t.Helper()
	for _, f := range frames {
		if err := s.Send(f); err != nil {
			_, err = s.Recv()
			t.Fatal(err)
		}
	}
}

// A push is received once it is complete, whatever the codec, and whichever frames come twice.
func TestEncodedPushesAreReceived(t *testing.T) {
	c := start(t)
	s := c.push()
	for i, spec := range []string{"fp32+s2", "bf16+huff0", "fp16", "int8+s2", "sign", "topk:0.01", "topk:0.5:fp32+auto", "powersgd:1"} {
		p := id(0)
		p.Incarnation = kintsugi.Incarnation(i + 1) // otherwise the shard would hold too many pushes of one worker
		c.join(p.Slot, p.Incarnation)
		frames := c.encoded(spec, p, 1.5)
		c.sendFrames(s, frames[0], frames[0])
		c.sendFrames(s, frames[1:]...)
		c.wantReceived(s, p)
		c.sendFrames(s, frames...)
		c.wantReceived(s, p)
	}
}

// A payload that the kernel must not see is refused with the tensor's name, and may be sent again.
func TestAPayloadThatIsWrongIsRefusedByTheNameOfItsTensor(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	s := c.push()
	for name, spoil := range map[string]func(f *transport.Frame){
		"a scale that is NaN": func(f *transport.Frame) {
			binary.LittleEndian.PutUint32(f.Payload, math.Float32bits(float32(math.NaN())))
		},
		"bytes too few":  func(f *transport.Frame) { f.Payload = f.Payload[:len(f.Payload)-1] },
		"bytes too many": func(f *transport.Frame) { f.Payload = append(f.Payload, 0) },
		"no bytes":       func(f *transport.Frame) { f.Payload = nil },
	} {
		frames := c.encoded("int8", id(0), 1)
		spoil(frames[0])
		frames[0] = frameWith(id(0), frames[0].Chunks, frames[0].Codec, frames[0].Payload)
		c.sendFrames(s, frames...)
		m := ok[kintsugi.HeadMessage](c)(s.Recv())
		if r, refused := m.(kintsugi.Refused); !refused || !strings.Contains(r.Reason, "tensor w") {
			c.Fatalf("%s: got %+v, want a refusal that names the tensor", name, m)
		}
	}
	c.sendFrames(s, c.encoded("int8", id(0), 1)...)
	c.wantReceived(s, id(0))
}

// Frames that share a chunk but are not equal do not come from a worker of ours.
func TestFramesThatOverlapAreCorrupt(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	s := c.push()
	f := c.encoded("sign", id(0), 1)[0]
	chunk := c.layout.Chunks[0].Len()
	first := frameWith(id(0), kintsugi.ChunkRange{Hi: 1}, f.Codec, f.Payload[:(chunk+255)/256*4+(chunk+7)/8])
	c.sendFrames(s, first, f)
	if m, err := s.Recv(); !errors.Is(err, kintsugi.ErrCorrupt) {
		c.Errorf("got %+v, %v, want %v", m, err, kintsugi.ErrCorrupt)
	}
}

// A lossless stage whose output is larger than the chunks is refused before memory is taken for it.
func TestAFrameThatUnpacksToTooMuchIsCorrupt(t *testing.T) {
	c := start(t)
	c.join(0, 1)
	bomb := binary.AppendUvarint(nil, 1<<31) // the length of a block of s2
	for _, e := range []kernels.Encoding{kernels.FP32, kernels.Sparse16} {
		s := c.push()
		c.sendFrames(s, frameWith(id(0), c.frames[0], transport.CodecOf(e, compress.S2), bomb))
		if m, err := s.Recv(); !errors.Is(err, kintsugi.ErrCorrupt) {
			c.Errorf("%v: got %+v, %v, want %v", e, m, err, kintsugi.ErrCorrupt)
		}
	}
}

// A frame stands for no more values than a worker's frames do, however few bytes it has: its
// unpacked length is bounded by that, and not by the shard.
func TestAFrameThatStandsForTooMuchIsCorrupt(t *testing.T) {
	c := startWith(t, kintsugi.RuleSGD, transport.MaxFrameValues+1)
	c.join(0, 1)
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(c.layout.Chunks))}
	bomb := s2.Encode(nil, make([]byte, 4*c.layout.Values))
	s := c.push()
	c.sendFrames(s, frameWith(id(0), all, transport.CodecOf(kernels.FP32, compress.S2), bomb))
	if m, err := s.Recv(); !errors.Is(err, kintsugi.ErrCorrupt) {
		c.Errorf("%d bytes for %d values: got %+v, %v, want %v", len(bomb), c.layout.Values, m, err, kintsugi.ErrCorrupt)
	}
}

// Counts must be exact.
func TestRulesThatNeedExactGradientsRefuseOthers(t *testing.T) {
	for _, rule := range []kintsugi.Rule{kintsugi.RuleAdd, kintsugi.RuleAssign} {
		c := startWith(t, rule, 200_000)
		c.join(0, 1)
		s := c.push()
		c.sendFrames(s, c.encoded("int8", id(0), 1)...)
		c.wantRefused(s, id(0))
		c.sendFrames(s, c.encoded("fp32+s2", id(0), 1)...)
		c.wantReceived(s, id(0))
	}
}

// FuzzPush: no frame that a member pushes makes its head panic or end. It is answered, or its
// stream ends with a condition on which the worker can act.
func FuzzPush(f *testing.F) {
	c := startWith(f, kintsugi.RuleSGD, 60) // small, since what else a target reaches differs each time, and every input that seems new is minimised
	c.join(0, 1)
	for _, spec := range []string{"fp32", "fp32+s2", "int8", "sign", "topk:0.1", "bf16+huff0"} {
		x := c.encoded(spec, id(0), 1)[0]
		f.Add(uint8(x.Codec), uint32(x.Chunks.Lo), uint32(x.Chunks.Hi), uint32(0), x.Payload)
	}
	f.Fuzz(func(t *testing.T, codec uint8, lo, hi, sequence uint32, payload []byte) {
		p := id(0)
		p.Sequence = sequence % 3
		x := frameWith(p, kintsugi.ChunkRange{Lo: kintsugi.ChunkID(lo), Hi: kintsugi.ChunkID(hi)}, transport.Codec(codec), payload[:min(len(payload), transport.MaxPayloadBytes)])
		s, err := c.peer.Push(c.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // if a send fails because the stream has ended, Recv returns the reason
			_ = s.Send(x)
		}
		_ = s.CloseSend()
		for {
			_, err := s.Recv()
			if err == nil {
				continue
			}
			if err != io.EOF && !errors.Is(err, kintsugi.ErrCorrupt) && !errors.Is(err, kintsugi.ErrOtherModel) {
				t.Fatalf("got %v, which names no condition", err)
			}
			return
		}
	})
}
