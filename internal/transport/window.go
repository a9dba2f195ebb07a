package transport

import "google.golang.org/grpc"

// A window is how many bytes one side of a connection may send, on each stream, before the other
// side has read them. It limits the data under way and the data that a slow reader has not yet
// read. If that fits in the caches, received data is read and copied in the cache: receiving a
// gradient takes a tenth less processor time. A stream carries at most one window per round trip,
// so a long-distance connection needs a larger window. gRPC's own windows begin at 64 KiB and grow
// up to 16 MiB with the data under way. On one host that is more than fits in the caches.
const (
	DefaultWindow = 1 << 20
	LeastWindow   = 64 << 10 // a limit of HTTP/2: gRPC would use its own window for less
	MostWindow    = 1<<31 - 1
)

// ServeWindow sets the window, in bytes, for what a server receives on each stream, between
// LeastWindow and MostWindow. 0 means gRPC's own window.
func ServeWindow(bytes int) ServerOption {
	return func(o *serverOptions) {
		if bytes > 0 {
			o.more = append(o.more, grpc.InitialWindowSize(int32(bytes)), grpc.InitialConnWindowSize(int32(bytes)))
		}
	}
}

// DialWindow sets the window, in bytes, for what a peer receives on each stream, like ServeWindow.
func DialWindow(bytes int) DialOption {
	return func(o *dialling) {
		if bytes > 0 {
			o.more = append(o.more, grpc.WithInitialWindowSize(int32(bytes)), grpc.WithInitialConnWindowSize(int32(bytes)))
		}
	}
}
