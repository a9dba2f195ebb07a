package mtls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Info is gRPC's information about the other side of a connection that uses these credentials.
type Info struct {
	credentials.TLSInfo
	Name Name
}

// Caller returns the name of the client that has opened a gRPC stream or made a call, from its
// context; false if the connection does not use TLS. If the client's certificate has no name, the
// returned Name is empty, which is no role.
func Caller(ctx context.Context) (Name, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Name{}, false
	}
	switch info := p.AuthInfo.(type) {
	case Info:
		return info.Name, true
	case credentials.TLSInfo: // of a server that reads the files itself
		if len(info.State.PeerCertificates) == 0 {
			return Name{}, true
		}
		n, err := nameOf(info.State.PeerCertificates[0])
		if err != nil {
			return Name{}, true
		}
		return n, true
	}
	return Name{}, false
}

// Domain returns the trust domain of this process's certificate.
func (c *Credentials) Domain() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.name.Domain
}

// Client is the TLS configuration for connections to want, for gRPC.
type Client struct {
	c      *Credentials
	want   Whom
	failed *atomic.Pointer[error]
}

var _ credentials.TransportCredentials = (*Client)(nil)

// Client returns gRPC credentials for connections to want.
func (c *Credentials) Client(want Whom) *Client {
	return &Client{c: c, want: want, failed: &atomic.Pointer[error]{}}
}

// Failure returns why the last attempt to connect has failed; nil: it has not, or not because of
// TLS.
func (x *Client) Failure() error {
	if err := x.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (x *Client) ClientHandshake(ctx context.Context, address string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m, err := x.c.current(time.Now())
	if err != nil {
		return nil, nil, x.fail(address, err)
	}
	conn, info, err := credentials.NewTLS(m.clientConfig(hostOf(address), x.want)).ClientHandshake(ctx, address, raw)
	if err != nil {
		return nil, nil, x.fail(address, err)
	}
	x.failed.Store(nil)
	return &alerted{Conn: conn, told: func(err error) error { return x.fail(address, err) }}, info, nil
}

// fail returns the error of a connection to an address, and remembers it.
func (x *Client) fail(address string, err error) error {
	if !matters(err) {
		return err
	}
	err = fmt.Errorf("%v at %s: %w", x.want, address, explain(err, "its certificate"))
	x.failed.Store(&err)
	x.c.say("no connection", "why", err.Error())
	return err
}

// ServerHandshake implements credentials.TransportCredentials.
func (x *Client) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (x *Client) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (x *Client) Clone() credentials.TransportCredentials { return x }

// OverrideServerName implements credentials.TransportCredentials. It always fails: the name is that
// of the dialled host.
func (x *Client) OverrideServerName(string) error {
	return errors.New("the name of the host that is dialled cannot be another one")
}

// alerted is a connection on which the server may still refuse the client: in TLS 1.3, the client's
// handshake is complete before the server has checked the client's certificate.
type alerted struct {
	net.Conn
	heard bool
	told  func(error) error
}

// Read implements net.Conn.
func (a *alerted) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if err != nil && !a.heard {
		a.heard = true
		err = a.told(err)
	}
	return n, err
}

// DialContext returns a function that connects to want by TCP and TLS, for http.Transport and bare
// connections.
func (c *Credentials) DialContext(want Whom) func(ctx context.Context, network, address string) (net.Conn, error) {
	x := c.Client(want)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		m, err := c.current(time.Now())
		if err == nil {
			conn := tls.Client(raw, m.clientConfig(hostOf(address), want))
			if err = conn.HandshakeContext(ctx); err == nil {
				return &alerted{Conn: conn, told: func(err error) error { return x.fail(address, err) }}, nil
			}
		}
		_ = raw.Close() // nothing was sent on it
		return nil, x.fail(address, err)
	}
}

// ServerConfig returns the TLS configuration of a server that admits the given roles. It does not
// log refused connections.
func (c *Credentials) ServerConfig(may ...Role) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m, err := c.current(time.Now())
			if err != nil {
				return nil, err
			}
			return m.serverConfig(may), nil
		},
	}
}

// Callers is the TLS configuration of a gRPC server that admits some roles.
type Callers struct {
	c   *Credentials
	may []Role
}

var _ credentials.TransportCredentials = (*Callers)(nil)

// Callers returns gRPC credentials for a server that admits the given roles.
func (c *Credentials) Callers(may ...Role) *Callers { return &Callers{c, may} }

// ServerHandshake implements credentials.TransportCredentials.
func (x *Callers) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m, err := x.c.current(time.Now())
	if err != nil {
		x.c.say(err.Error())
		return nil, nil, err
	}
	lasting := &lingering{Conn: raw}
	conn, info, err := credentials.NewTLS(m.serverConfig(x.may)).ServerHandshake(lasting)
	lasting.done.Store(true)
	if err != nil {
		if matters(err) {
			err = explain(err, "its certificate")
			x.c.say("a connection was refused", "from", hostOf(raw.RemoteAddr().String()), "why", err.Error())
		}
		return nil, nil, err // unchanged if the client only tested whether the port is open
	}
	secured, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil, nil, fmt.Errorf("gRPC says %T of a connection by TLS", info)
	}
	name, err := m.caller(secured.State.PeerCertificates[0], x.may)
	if err != nil {
		return nil, nil, err
	}
	return conn, Info{TLSInfo: secured, Name: name}, nil
}

// lingering is a connection whose handshake may fail. The client has done its part by then and is
// already sending. If the connection were closed with unread data, the operating system would
// discard the alert that has the reason.
type lingering struct {
	net.Conn
	done atomic.Bool // the handshake has succeeded, or the connection is closed
}

const linger = 500 * time.Millisecond

// Close implements net.Conn.
func (l *lingering) Close() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok && !l.done.Swap(true) {
		if half.CloseWrite() == nil && l.SetReadDeadline(time.Now().Add(linger)) == nil {
			_, _ = io.Copy(io.Discard, l.Conn) // until the client has read the alert and closes too
		}
	}
	return l.Conn.Close()
}

// ClientHandshake implements credentials.TransportCredentials.
func (x *Callers) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a server")
}

// Info implements credentials.TransportCredentials.
func (x *Callers) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (x *Callers) Clone() credentials.TransportCredentials { return x }

// OverrideServerName implements credentials.TransportCredentials.
func (x *Callers) OverrideServerName(string) error {
	return errors.New("a server has no name of another")
}
