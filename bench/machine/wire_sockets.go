package machine

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// sockets returns a link of plain connections, one for each worker and server. A message is a
// header of 64 bytes with a checksum, and the payload, which is read to its destination; the answer
// is one byte. An empty address means a unix socket.
func (w *wire) sockets(network, address string) (l *link, err error) {
	dir := ""
	if address == "" {
		if dir, err = os.MkdirTemp("", "kintsugi-bench-"); err != nil {
			return nil, err
		}
		address = filepath.Join(dir, "socket")
	}
	var open []io.Closer
	l = &link{close: func() {
		for _, c := range open {
			_ = c.Close() // nobody needs what could still be read
		}
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}}
	lis, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	open = append(open, lis)
	senders, turns := make([][]net.Conn, w.cfg.Workers), make([][]*atomic.Uint32, w.cfg.Workers)
	for worker := range senders {
		for server := range w.cfg.Servers {
			c, err := net.Dial(network, lis.Addr().String())
			if err != nil {
				l.close()
				return nil, err
			}
			open = append(open, c)
			receiver, err := lis.Accept()
			if err != nil {
				l.close()
				return nil, err
			}
			open = append(open, receiver)
			turn := &atomic.Uint32{}
			senders[worker] = append(senders[worker], c)
			turns[worker] = append(turns[worker], turn)
			go func() {
				if err := w.landSocket(receiver, turn, w.of(w.landed, worker, server)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					w.fail(err)
					_ = receiver.Close() // otherwise the sender would wait for an answer
				}
			}()
		}
	}
	l.push = func(worker, server int) error {
		return w.sendSocket(senders[worker][server], turns[worker][server], w.of(w.gradients, worker, server))
	}
	return l, nil
}

const socketHeader = 64

// sendSocket sends a part. The race detector does not know that a write to a socket happens before
// the read of its bytes; turn tells it.
func (w *wire) sendSocket(c net.Conn, turn *atomic.Uint32, part []byte) error {
	var head [socketHeader]byte
	turn.Add(1)
	err := w.each(len(part), func(lo, hi int) error {
		binary.LittleEndian.PutUint32(head[:], kernels.CRC32C(0, part[lo:hi]))
		parts := net.Buffers{head[:], part[lo:hi]}
		_, err := parts.WriteTo(c)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.ReadFull(c, head[:1])
	return err
}

// landSocket receives parts until the sender is gone.
func (w *wire) landSocket(c net.Conn, turn *atomic.Uint32, dst []byte) error {
	var head [socketHeader]byte
	for {
		err := w.each(len(dst), func(lo, hi int) error {
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return err
			}
			turn.Load() // see sendSocket
			if _, err := io.ReadFull(c, dst[lo:hi]); err != nil {
				return err
			}
			return equalSums(binary.LittleEndian.Uint32(head[:]), kernels.CRC32C(0, dst[lo:hi]))
		})
		if err != nil {
			return err
		}
		if _, err := c.Write(head[:1]); err != nil {
			return err
		}
	}
}
