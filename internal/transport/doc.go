// Package transport carries the messages of the root package over gRPC.
//
// There are two planes. The control plane is protobuf (proto/kintsugi/v1): kilobytes a step. The data
// plane is service kintsugi.v1.Data, whose tensor side is raw Frames: a 64-byte header and whole chunks,
// 256 KiB to 1 MiB, never copied into a protobuf message. One codec carries both; docs/formats.md has
// every byte.
//
// Who owns the bytes of a frame. A sent payload belongs to the transport until Frame.Done is called:
// gRPC returns from SendMsg before the bytes are written, so a sender that changed them would corrupt
// the message silently. A received payload belongs to the receiver until Release.
//
// Who is at the other end is proved by TLS, where both sides have credentials (package mtls):
// DialTLS, ServeTLS. Beside each stream stand the roles that may open it. Streams, frames and who
// owns their bytes are the same with TLS and without.
//
// The shells in worker, server and internal/launch see only root messages and the stream types here.
package transport
