// Package mtls authenticates the processes of a run to one another. Begin reading at Open (the
// credentials of a process), Name and Role.
//
// It uses mutual TLS 1.3: both sides show a certificate, and both are verified. In addition, a
// certificate contains a Name, which is a role and possibly a place, as a URI among its subject
// alternative names. A server admits the roles that may use it. A client knows which server it
// wants, and accepts no other. What each role may do is defined where it is served: for streams in
// package transport, for the keys of a run in package etcd.
//
// A server must be authentic in one more way, since all servers of a run may share one certificate:
// the certificate must name the host or address that was dialled, or exactly the place.
//
// # Files
//
// Credentials are three files in a folder: ca.pem has the trusted authorities, cert.pem the
// certificate of this process and the certificates between it and an authority, and key.pem the
// private key. The files are checked before each handshake and read again when they have changed.
// So certificates can be renewed and authorities replaced while everything is running. Files that
// do not fit together, because they are just being replaced, are ignored.
//
// An open connection stays open when its certificates expire: both sides were authentic when it
// began.
package mtls
