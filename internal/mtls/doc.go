// Package mtls proves to the processes of a run who is at the other end of a connection.
//
// It is mutual TLS 1.3: both sides show a certificate, and both are verified. What a certificate
// says beside that is a Name: a role, and perhaps a place, in a URI among its subject alternative
// names. Whoever serves lets the roles in that have business there; whoever dials knows which
// server it wants, and believes nobody else. Which role may do what is said where it is served:
// package transport has the streams, package etcd the keys of a run.
//
// Whoever is dialled must be authentic in one more way, since all servers of a run may share one
// certificate: it names the host or address that was dialled, or the very place.
//
// # Files
//
// Credentials are three files in a folder: ca.pem, the authorities that are believed; cert.pem, the
// certificate of this process and those between it and an authority; key.pem. They are looked at
// before each handshake and read again when they have changed, so that certificates are renewed,
// and authorities replaced, while everything runs. Files that do not go together, because they are
// just being replaced, change nothing.
//
// A connection that is open stays open when its certificates expire: both sides were who they said when it began.
package mtls
