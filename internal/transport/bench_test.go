package transport

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// BenchmarkPushStream measures how much of the socket's rate is left for a push of 1 MiB frames
// over loopback, which land in a destination and are checked by CRC32C on both sides. Claim: gRPC
// with our codec keeps at least half of what a bare TCP connection does with the same work in the
// same run.
func BenchmarkPushStream(b *testing.B) {
	const frames = 16 // a destination of 16 MiB, larger than the cache of a core
	src, dst := filled(frames*MaxPayloadBytes, 1), make([]byte, frames*MaxPayloadBytes)
	part := func(all []byte, i int) []byte {
		return all[i%frames*MaxPayloadBytes:][:MaxPayloadBytes]
	}
	b.Run("grpc", func(b *testing.B) {
		benchGRPC(b, func(i int) []byte { return part(src, i) }, func(i int) []byte { return part(dst, i) })
	})
	b.Run("tcp", func(b *testing.B) {
		benchTCP(b, func(i int) []byte { return part(src, i) }, func(i int) []byte { return part(dst, i) })
	})
}

func benchGRPC(b *testing.B, src, dst func(int) []byte) {
	_, p := loopback(b, handler{push: func(s *PushServer) error {
		for i := 0; ; i++ {
			f, err := s.Recv()
			if err != nil {
				return err
			}
			err = f.CopyTo(dst(i))
			last := f.Push.Version == 1
			f.Release()
			if err != nil {
				return err
			}
			if last {
				if err := s.Send(kintsugi.Received{}); err != nil {
					return err
				}
			}
		}
	}})
	s := must[*PushClient](b)(p.Push(b.Context()))
	push := func(n int) {
		for i := range n {
			f := frameOf(src(i))
			if f.Push.Version = 0; i == n-1 {
				f.Push.Version = 1
			}
			if err := s.Send(f); err != nil {
				_, err = s.Recv()
				b.Fatal(err)
			}
		}
		if _, err := s.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	push(64) // so that the window finds its size, and pools fill
	b.SetBytes(MaxPayloadBytes)
	b.ReportAllocs()
	b.ResetTimer()
	push(b.N)
	reportRate(b)
}

// benchTCP does the same on a bare connection: a length and a checksum, the payload, one answer.
func benchTCP(b *testing.B, src, dst func(int) []byte) {
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer lis.Close()
	wrong := make(chan error, 1)
	go func() { wrong <- landTCP(lis, dst) }()
	c, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	push := func(n int) {
		for i := range n {
			var head [16]byte
			payload := src(i)
			binary.LittleEndian.PutUint32(head[0:], Checksum(payload))
			head[4] = byte(min(1, n-1-i)) // 0: the last one
			bufs := net.Buffers{head[:], payload}
			if _, err := bufs.WriteTo(c); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
	}
	push(64)
	b.SetBytes(MaxPayloadBytes)
	b.ReportAllocs()
	b.ResetTimer()
	push(b.N)
	reportRate(b)
	_ = c.Close()
	if err := <-wrong; err != io.EOF {
		b.Fatal(err)
	}
}

func landTCP(lis net.Listener, dst func(int) []byte) error {
	c, err := lis.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	var head [16]byte
	for i := 0; ; i++ {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		payload := dst(i)
		if _, err := io.ReadFull(c, payload); err != nil {
			return err
		}
		if Checksum(payload) != binary.LittleEndian.Uint32(head[0:]) {
			return kintsugi.ErrCorrupt
		}
		if head[4] == 0 {
			if _, err := c.Write(head[:1]); err != nil {
				return err
			}
		}
	}
}

func reportRate(b *testing.B) {
	b.ReportMetric(float64(b.N)*MaxPayloadBytes/1e9/b.Elapsed().Seconds(), "GB/s")
}
