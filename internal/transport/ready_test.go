package transport

import (
	"context"
	"net"
	"testing"
	"time"
)

// A connection that breaks as soon as it exists is dialled again. Otherwise a caller that waits for
// it would wait for a change that nobody makes.
func TestAConnectionThatBreaksAsItComesIsWantedAgain(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // the settings of an HTTP/2 server, after which the connection is ready
			_ = c.Close()
		}
	}()
	for range 100 {
		p, err := Dial(lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_ = p.Ready(ctx) // it was ready, or cannot be reached: both are fine
		if ctx.Err() != nil {
			t.Fatal("it waits for a connection that nobody wants any more")
		}
		cancel()
		_ = p.Close()
	}
}
