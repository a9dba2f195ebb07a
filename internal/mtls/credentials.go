package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// The files in a folder of credentials, in PEM.
const (
	AuthorityFile   = "ca.pem"   // certificates of the trusted authorities
	CertificateFile = "cert.pem" // the certificate of the process, then those between it and an authority
	KeyFile         = "key.pem"  // the private key
)

// Credentials are the certificate that this process shows, and the authorities that it trusts.
// Wherever Credentials are expected, a nil pointer means connections without TLS. They are safe for
// concurrent use.
type Credentials struct {
	dir   string // the folder of the files
	role  Role
	index int // the process's place in its run; Any: none; Every: one after the other
	log   *slog.Logger

	mu   sync.Mutex // guards the following fields
	seen [3]fs.FileInfo
	now  *material

	said words
}

// material is the content of the files. It is immutable.
type material struct {
	dir  string
	pool *x509.CertPool
	cert tls.Certificate // Leaf is set
	name Name
}

// Open reads the credentials of a process with the given role and index, which is its place in the
// run, or Any, or Every. It uses the first of the folders dir/ROLE/INDEX, dir/ROLE and dir that has a
// certificate, so all processes of a host can be given the same folder, as filled by Make. If a
// file is missing, or the certificate is for another process, the error is an ErrUsage. log
// receives refused connections, and a warning when the certificate is about to expire; nil: no log.
func Open(dir string, role Role, index int, log *slog.Logger) (*Credentials, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Credentials{role: role, index: index, log: log}
	for _, below := range []string{filepath.Join(string(role), strconv.Itoa(index)), string(role), "."} {
		c.dir = filepath.Join(dir, below)
		if _, err := os.Stat(filepath.Join(c.dir, CertificateFile)); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: read credentials: %w", kintsugi.ErrUsage, err)
		}
		if below == "." {
			return nil, fmt.Errorf("%w: --tls %s: neither it nor its folder %s has a %s: make one with kintsugi certs --out %s", kintsugi.ErrUsage, dir, role, CertificateFile, dir)
		}
	}
	seen, err := c.look()
	if err == nil {
		c.seen = seen
		c.now, err = c.load(time.Now())
	}
	if err == nil {
		err = c.now.expired(time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("credentials in %s: %w", c.dir, err)
	}
	return c, nil
}

// Files returns the paths of the files, for programs that read them themselves.
func (c *Credentials) Files() (authorities, certificate, key string) {
	return filepath.Join(c.dir, AuthorityFile), filepath.Join(c.dir, CertificateFile), filepath.Join(c.dir, KeyFile)
}

// CommonName returns the common name of the certificate's subject. This package does not use it.
func (c *Credentials) CommonName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.cert.Leaf.Subject.CommonName
}

// Watch logs a warning, once an hour, if the certificate is about to expire, until ctx ends.
// Connections that stay open would not notice it.
func (c *Credentials) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if _, err := c.current(time.Now()); err != nil {
			c.say(err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look returns the current state of the files.
func (c *Credentials) look() (seen [3]fs.FileInfo, err error) {
	for i, name := range []string{AuthorityFile, CertificateFile, KeyFile} {
		if seen[i], err = os.Stat(filepath.Join(c.dir, name)); err != nil {
			return seen, fmt.Errorf("%w: %w: copy all three files there, %s, %s and %s", kintsugi.ErrUsage, err, AuthorityFile, CertificateFile, KeyFile)
		}
	}
	return seen, nil
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// load reads the files. They are usable if they fit together and belong to this process. Whether
// the certificate is valid at a given time is checked before each use.
func (c *Credentials) load(now time.Time) (*material, error) {
	authorities, certificate, key := c.Files()
	ca, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	m := &material{dir: c.dir, pool: x509.NewCertPool()}
	if !m.pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM", kintsugi.ErrUsage, AuthorityFile)
	}
	if m.cert, err = tls.LoadX509KeyPair(certificate, key); err != nil {
		return nil, fmt.Errorf("%w: %s and %s: %w", kintsugi.ErrUsage, CertificateFile, KeyFile, err)
	}
	leaf := m.cert.Leaf
	if m.name, err = nameOf(leaf); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", kintsugi.ErrUsage, CertificateFile, err)
	}
	if c.index == Every && m.name.Role == c.role && m.name.Index != Any {
		return nil, fmt.Errorf("%w: %s is the certificate of %v alone, and this process may take any place: give it one for all, as kintsugi certs makes for %s", kintsugi.ErrUsage, CertificateFile, m.name, c.role)
	}
	if !m.name.is(c.role, c.index) {
		return nil, fmt.Errorf("%w: %s is the certificate of %v, and this process is %v: name the folder of its own", kintsugi.ErrUsage, CertificateFile, m.name, Name{Role: c.role, Index: max(c.index, Any)})
	}
	chain, err := parsed(m.cert.Certificate)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", kintsugi.ErrUsage, CertificateFile, err)
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if c.role.serves() {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	at := now
	if at.Before(leaf.NotBefore) {
		at = leaf.NotBefore
	} else if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	for _, usage := range usages {
		if err := m.verify(chain, usage, at); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", kintsugi.ErrUsage, CertificateFile, explain(err, "the certificate"))
		}
	}
	return m, nil
}

func parsed(der [][]byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for _, b := range der {
		cert, err := x509.ParseCertificate(b)
		if err != nil {
			return nil, err
		}
		chain = append(chain, cert)
	}
	return chain, nil
}

// expired returns an error if the certificate is not valid at the given time.
func (m *material) expired(at time.Time) error {
	leaf := m.cert.Leaf
	switch {
	case at.After(leaf.NotAfter):
		return refusal{fmt.Errorf("the certificate of this process in %s has expired on %s: put a new one there, which is read without a restart", m.dir, date(leaf.NotAfter))}
	case at.Before(leaf.NotBefore):
		return refusal{fmt.Errorf("the certificate of this process in %s is valid from %s: check the clock of this host", m.dir, date(leaf.NotBefore))}
	}
	return nil
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// current returns the material for a handshake that begins now, or an error if none is valid.
func (c *Credentials) current(at time.Time) (*material, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen, err := c.look(); err != nil {
		c.say("credentials cannot be read again: " + err.Error())
	} else if !same(seen[0], c.seen[0]) || !same(seen[1], c.seen[1]) || !same(seen[2], c.seen[2]) {
		if m, err := c.load(at); err != nil { // the files are being replaced one after the other
			c.say(fmt.Sprintf("the new credentials in %s are not used: %v", c.dir, err))
		} else {
			c.seen, c.now = seen, m
			c.log.Info("read new credentials", "folder", c.dir, "valid_until", date(m.cert.Leaf.NotAfter))
		}
	}
	leaf := c.now.cert.Leaf
	if left := leaf.NotAfter.Sub(at); left > 0 && left < leaf.NotAfter.Sub(leaf.NotBefore)/10 {
		c.say(fmt.Sprintf("the certificate of this process in %s expires on %s: put a new one there, which is read without a restart", c.dir, date(leaf.NotAfter)))
	}
	return c.now, c.now.expired(at)
}

// words remembers what was logged recently.
type words struct {
	mu   sync.Mutex
	when map[string]time.Time
}

// quiet is the time before the same text is logged again: a refused process tries again many times
// per second.
const quiet = 10 * time.Minute

// new reports whether a text should be logged now. It remembers only as many texts as people would
// read.
func (w *words) new(text string, at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.when[text]; ok && at.Sub(last) < quiet {
		return false
	}
	if w.when == nil || len(w.when) >= 100 {
		w.when = make(map[string]time.Time)
	}
	w.when[text] = at
	return true
}

// say logs a warning, but not the same one twice in a short time.
func (c *Credentials) say(text string, about ...any) {
	if c.said.new(text+fmt.Sprint(about...), time.Now()) {
		c.log.Warn(text, about...)
	}
}
