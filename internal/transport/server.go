package transport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Keep-alive pings. A server notices a client that hangs, or whose host is gone, after
// serverPingEvery + pingTimeout; a client notices such a server after clientPingEvery +
// pingTimeout. gRPC does not let clients ping more often. The server must accept the pings of its
// clients, or it would close healthy connections for pinging too often.
const (
	serverPingEvery = 5 * time.Second
	clientPingEvery = 10 * time.Second
	pingTimeout     = 5 * time.Second
)

// Limits of a connection. A peer has one stream of each kind for each shard, so a thousand are
// plenty. gRPC's own limits are four billion streams and 16 MiB of request headers.
const (
	maxStreams      = 1024
	maxHeaderBytes  = 16 << 10
	readBufferBytes = 128 << 10 // gRPC has 32 KiB; with more, a frame needs fewer system calls

	// With this size, one system call sends a frame together with what gRPC adds, if flow control
	// permits it; with gRPC's 32 KiB it takes seventeen. Connections share these buffers: a
	// connection has one only while it has something to write.
	writeBufferBytes = FrameBytes + 8<<10
)

// Handler serves the streams of one process. Each call runs in its own goroutine and owns its
// stream until it returns. The error that it returns ends the stream and reaches the client.
type Handler interface {
	Work(*WorkServer) error
	Watch(*WatchServer) error
	Control(*ControlServer) error
	Push(*PushServer) error
	Read(*ReadServer) error
	Follow(*FollowServer) error
}

// Server is a gRPC server with the health service and the streams of this package.
type Server struct {
	grpc     *grpc.Server
	health   *health.Server
	listener net.Listener
}

// Listen listens on addr (host:port; port 0 means any free port). If the port is in use, the error
// names it.
func Listen(addr string) (net.Listener, error) {
	lis, err := net.Listen("tcp", addr)
	if err == nil {
		return lis, nil
	}
	todo, name := "", (*net.DNSError)(nil)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		todo = "; choose another address or stop the process that has it"
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, &name):
		todo = "; use an address of this host, or a name of it that resolves here"
	case errors.Is(err, os.ErrPermission):
		todo = "; use a port from 1024 on, or give this process the right to those below"
	}
	return nil, fmt.Errorf("listen on %s: %w%s", addr, err, todo)
}

// A ServerOption configures a server.
type ServerOption func(*serverOptions)

type serverOptions struct {
	sizes Sizes
	more  []grpc.ServerOption
}

// ServeSizes sets the run's sizes, from which the limits on messages between servers follow.
func ServeSizes(s Sizes) ServerOption {
	return func(o *serverOptions) { o.sizes = s }
}

// ServeTLS makes a server accept only clients that prove their identity, and lets each role open
// only the streams that are for it. nil means plain TCP: everyone who can reach the port may open
// all streams.
func ServeTLS(c *mtls.Credentials) ServerOption {
	return func(o *serverOptions) {
		if c != nil {
			o.more = append(o.more, grpc.Creds(c.Callers(mtls.Worker, mtls.Server, mtls.Coordinator, mtls.Operator)))
		}
	}
}

// NewServer returns a server for h on lis. Call Serve to start it and Stop to end it.
func NewServer(lis net.Listener, h Handler, opts ...ServerOption) *Server {
	var o serverOptions
	for _, set := range opts {
		set(&o)
	}
	c := codec{sizes: o.sizes}
	g := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(c),
		grpc.MaxRecvMsgSize(c.sizes.tables()), // gRPC has one limit for all streams
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WriteBufferSize(writeBufferBytes),
		experimental.BufferPool(&received),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingEvery, Timeout: pingTimeout}),
	}, o.more...)...)
	for _, d := range services {
		g.RegisterService(d, &service{Handler: h, codec: c})
	}
	hs := health.NewServer()
	hs.SetServingStatus(alive, healthpb.HealthCheckResponse_SERVING)
	hs.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING) // until SetReady
	healthpb.RegisterHealthServer(g, hs)
	return &Server{grpc: g, health: hs, listener: lis}
}

// service is the value that gRPC passes back with each stream.
type service struct {
	Handler
	codec codec
}

// Serve accepts connections until Stop is called.
func (s *Server) Serve() error { return s.grpc.Serve(s.listener) }

// alive is the name of the process itself in the health service: it is serving as long as it
// answers.
const alive = "alive"

// SetReady sets what the health service answers for the server, whose name there is "". At first it
// is not ready.
func (s *Server) SetReady(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
}

// Stop ends all streams and closes the listener. The contexts of handlers end; Stop does not wait
// for handlers to return.
func (s *Server) Stop() { s.grpc.Stop() }

// Address returns the address that the server listens on.
func (s *Server) Address() string { return s.listener.Addr().String() }

// serve adapts a handler method to gRPC. may lists the roles that may call it if callers prove
// their identity.
func serve[Out, In any](name string, may []mtls.Role, encode func(Out) any, recv func(func(any) error) (In, error), method func(Handler, *Stream[Out, In]) error) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: name, ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, raw grpc.ServerStream) error {
			from, err := admit(raw.Context(), name, may)
			if err != nil {
				return err
			}
			common, err := acceptOffers(raw)
			if err != nil {
				return err
			}
			s := &Stream[Out, In]{raw: raw, encode: encode, recv: recv, memory: common.memory, trial: common.trial, from: from}
			if s.trial != nil {
				defer s.trial.Close()
			}
			if common.pipes != nil {
				l := newLane(raw, common.pipes, true, srv.(*service).codec)
				defer l.close() // before the status is sent: a client reads the pipe to its end first
				s.raw = l
			}
			return toWire(method(srv.(*service).Handler, s))
		},
	}
}

func describe(name string, streams ...grpc.StreamDesc) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "kintsugi.v1." + name, HandlerType: (*Handler)(nil), Streams: streams, Metadata: "kintsugi/v1/kintsugi.proto"}
}

// The services, with the roles that may call each method. They are described by hand because the
// frames of Data are not protobuf messages.
var services = []*grpc.ServiceDesc{
	describe("Conductor",
		serve("Work", []mtls.Role{mtls.Worker}, encoder(conductorTo), receiver[pb.WorkerMessage](workerFrom), Handler.Work),
		serve("Watch", []mtls.Role{mtls.Operator}, encoder(eventTo), receiver[pb.WatchRequest](watchFrom), Handler.Watch)),
	describe("Replica",
		serve("Control", []mtls.Role{mtls.Server}, encoder(replicaTo), receiver[pb.ControlMessage](controlDecode), Handler.Control)),
	describe("Data",
		serve("Push", []mtls.Role{mtls.Worker}, encoder(headTo), recvFrame, Handler.Push),
		serve("Read", []mtls.Role{mtls.Worker, mtls.Operator}, frameAsIs, receiver[pb.ReadRequest](readFrom), Handler.Read),
		serve("Follow", []mtls.Role{mtls.Server}, frameAsIs, receiver[pb.FollowerMessage](followerFrom), Handler.Follow)),
}
