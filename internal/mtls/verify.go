package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Whom is the required identity of the other side of a connection that this process opens.
type Whom struct {
	Role  Role
	Index int // Any: any place of the role

	// Nameless also accepts a certificate of an authority in ca.pem for the dialled host that has
	// no role, as for an etcd that does not belong to a run.
	Nameless bool
}

func (w Whom) String() string { return Name{Role: w.Role, Index: w.Index}.String() }

// verify checks that a chain, with the certificate of the process first, ends at a trusted
// authority and is valid for a usage at a time.
func (m *material) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, at time.Time) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// dialled returns nil if the certificates of the server at host are those of want.
func (m *material) dialled(chain []*x509.Certificate, host string, want Whom, at time.Time) error {
	if err := m.verify(chain, x509.ExtKeyUsageServerAuth, at); err != nil {
		return err
	}
	leaf := chain[0]
	of := leaf.VerifyHostname(host)
	n, err := nameOf(leaf)
	switch {
	case errors.Is(err, errNameless) && want.Nameless:
		return of
	case err != nil:
		return fmt.Errorf("its certificate says nothing that can be used: %w", err)
	case n.Domain != m.name.Domain:
		return otherDomain(n, m.name)
	case !n.is(want.Role, want.Index):
		return fmt.Errorf("it has the certificate of %v, where %v is wanted: check the address", n, want)
	case n.Index == Any || want.Index == Any:
		return of
	}
	return nil
}

// caller returns the name of a client, if its role is one of may. The chain must be verified
// already.
func (m *material) caller(leaf *x509.Certificate, may []Role) (Name, error) {
	n, err := nameOf(leaf)
	switch {
	case err != nil:
		return Name{}, fmt.Errorf("its certificate says nothing that can be used: %w", err)
	case n.Domain != m.name.Domain:
		return Name{}, otherDomain(n, m.name)
	case !slices.Contains(may, n.Role):
		return Name{}, fmt.Errorf("it has the certificate of %v, and %v listens to %s only", n, m.name, listed(may))
	}
	return n, nil
}

func otherDomain(its, own Name) error {
	return fmt.Errorf("its certificate is of the domain %s, and that of this process of %s: they belong to different runs", its.Domain, own.Domain)
}

// clientConfig returns the configuration of one handshake with want at a host.
func (m *material) clientConfig(host string, want Whom) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: host,
		// Show the certificate even if the server asks for one of another authority: its refusal
		// then says what is wrong.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.cert, nil },
		// VerifyConnection does all that crypto/tls would verify, and more: a place may stand for a
		// host.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return m.dialled(s.PeerCertificates, host, want, time.Now())
		},
		DynamicRecordSizingDisabled: true, // small records let web pages start earlier, but for tensors they only cost more calls
	}
}

// serverConfig returns the configuration of one handshake with a client that must have one of the
// given roles.
func (m *material) serverConfig(may []Role) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{m.cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    m.pool,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := m.caller(s.PeerCertificates[0], may)
			return err
		},
		SessionTicketsDisabled:      true, // a client that reconnects must show its certificate again
		DynamicRecordSizingDisabled: true,
	}
}

// hostOf returns the host part of host:port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// explain says what was wrong in a handshake, and what to do. whose describes the verified
// certificate, such as "its certificate".
func explain(err error, whose string) error {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var plain tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.IsCA:
		return fmt.Errorf("%s has an authority that is valid from %s to %s only: %w", whose, date(invalid.Cert.NotBefore), date(invalid.Cert.NotAfter), err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%s is valid from %s to %s only: renew it, or check the clocks: %w", whose, date(invalid.Cert.NotBefore), date(invalid.Cert.NotAfter), err)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("%s is not for this usage: all processes need clientAuth, and server, etcd and memory serverAuth as well: %w", whose, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("%s is not signed by an authority in %s: use certificates of one authority, or add the other one to that file: %w", whose, AuthorityFile, err)
	case errors.As(err, &host):
		return fmt.Errorf("%s is for other hosts: make one with kintsugi certs --hosts %s: %w", whose, host.Host, err)
	case errors.As(err, &plain):
		return fmt.Errorf("it does not speak TLS, and this process does: start both with --tls, or both without: %w", err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return explainAlert(remote)
	case err != nil && strings.Contains(err.Error(), "client didn't provide a certificate"):
		return fmt.Errorf("it shows no certificate: start it with --tls: %w", err)
	}
	return err
}

// ErrRefused means that the other side answers, but refuses the certificate of this process.
var ErrRefused = errors.New("the certificate of this process is refused")

// refusal is an ErrRefused with details.
type refusal struct{ error }

func (r refusal) Unwrap() error      { return r.error }
func (refusal) Is(target error) bool { return target == ErrRefused }

// explainAlert explains a TLS alert of the other side. The alert itself has no details; they are in
// the other side's log.
func explainAlert(alert *net.OpError) error {
	why := alert.Err.Error()
	switch {
	case strings.Contains(why, "unknown certificate authority"):
		return refusal{fmt.Errorf("it does not know the authority of this process's certificate: use certificates of one authority, or add the other one to its %s: %w", AuthorityFile, alert)}
	case strings.Contains(why, "expired certificate"):
		return refusal{fmt.Errorf("by its clock the certificate of this process is not valid: renew it, or check the clocks: %w", alert)}
	case strings.Contains(why, "bad certificate"):
		return refusal{fmt.Errorf("it refuses the certificate of this process, and says why in its log: %w", alert)}
	}
	return alert
}

// matters reports whether an error means more than a broken connection.
func matters(err error) bool {
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return network.Op == "remote error" || network.Op == "local error"
	}
	return strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "certificate")
}
