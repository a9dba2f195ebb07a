package transport

import "google.golang.org/grpc"

// A window is how many bytes one side of a connection may send before the other one has read them,
// on each stream: what is on its way, and what a reader that is slow has before it. As long as that
// fits in the caches, what arrives is read and copied there: a gradient lands with a tenth less of
// a processor's time. A stream carries a window a round trip, so that one over a long way wants
// more. gRPC's own windows begin with 64 KiB and grow up to 16 MiB with what has been on its way,
// which on one host is more than the caches have.
const (
	DefaultWindow = 1 << 20
	LeastWindow   = 64 << 10 // of HTTP/2: gRPC would take less for its own
	MostWindow    = 1<<31 - 1
)

// ServeWindow gives the connections of a server windows of so many bytes for what it receives, from
// LeastWindow to MostWindow. 0: gRPC's own.
func ServeWindow(bytes int) ServerOption {
	return func(o *serverOptions) {
		if bytes > 0 {
			o.more = append(o.more, grpc.InitialWindowSize(int32(bytes)), grpc.InitialConnWindowSize(int32(bytes)))
		}
	}
}

// DialWindow is ServeWindow for what a peer receives.
func DialWindow(bytes int) DialOption {
	return func(o *dialling) {
		if bytes > 0 {
			o.more = append(o.more, grpc.WithInitialWindowSize(int32(bytes)), grpc.WithInitialConnWindowSize(int32(bytes)))
		}
	}
}
