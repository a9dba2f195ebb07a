// Package transport carries the messages of the root package over gRPC. Begin reading at Stream
// (stream.go), Peer (client.go) and Server (server.go): a client opens streams on a Peer, and a
// Handler serves them.
//
// There are two planes. The control plane consists of protobuf messages (proto/kintsugi/v1),
// kilobytes per step. The data plane is service kintsugi.v1.Data. Its tensors travel in raw Frames:
// a 64-byte header and whole chunks, 256 KiB to 1 MiB, which are never copied into a protobuf
// message. One gRPC codec carries both. docs/formats.md specifies every byte.
//
// Ownership of a frame's bytes: a sent payload belongs to the transport until Frame.Done is called.
// gRPC returns from SendMsg before the bytes are written, so a sender that changed them would
// silently corrupt the message. A received payload belongs to the receiver until Release.
//
// If both sides have credentials (package mtls), TLS proves the identity of the other side:
// DialTLS, ServeTLS. The list of services says which roles may open each stream. Streams, frames
// and ownership are the same with and without TLS.
//
// The packages worker, server and internal/launch use only root messages and the stream types of
// this package.
package transport
