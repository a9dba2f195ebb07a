package mtls

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// AuthorityKeyFile is the private key of the authority that Make creates. Its owner can impersonate
// any process.
const AuthorityKeyFile = "ca-key.pem"

// authorityLife is the validity of the authority that Make creates.
const authorityLife = 10 * 365 * 24 * time.Hour

// Order says which certificates Make creates. All fields are required.
type Order struct {
	Names []Name
	Hosts []string // host names and addresses of the roles that serve; this host's own name and localhost are always added
	Now   time.Time
	Life  time.Duration
}

// Check returns an ErrUsage if the order is invalid.
func (o *Order) Check() error {
	for _, n := range o.Names {
		if !validDomain(n.Domain) {
			return fmt.Errorf("%w: %q is no domain: use small letters, digits, dots, dashes and underscores", kintsugi.ErrUsage, n.Domain)
		}
	}
	for _, h := range o.Hosts {
		if net.ParseIP(h) == nil && (h == "" || strings.ContainsAny(h, ":/ ")) {
			return fmt.Errorf("%w: %q is neither the name nor the address of a host, which have no port", kintsugi.ErrUsage, h)
		}
	}
	if o.Life < time.Minute || o.Life > authorityLife {
		return fmt.Errorf("%w: a certificate for %v: use between a minute and ten years", kintsugi.ErrUsage, o.Life)
	}
	return nil
}

// Make creates a certificate for each name, signed by the authority in dir. If there is none, it
// creates one: dir/ca.pem and dir/ca-key.pem. Each certificate gets a folder of credentials,
// dir/ROLE or dir/ROLE/INDEX; Make returns these folders. Existing certificates are replaced, and
// processes that use them switch to the new ones. Keys are P-256 and readable only by their owner.
func Make(dir string, o Order) (folders []string, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	a, err := openAuthority(dir, o.Now)
	if err != nil {
		return nil, err
	}
	for _, n := range o.Names {
		folder := filepath.Join(dir, filepath.FromSlash(n.String()))
		cert, key, err := a.sign(n, o)
		if err == nil {
			err = os.MkdirAll(folder, 0o755)
		}
		if err == nil {
			err = errors.Join(
				replace(filepath.Join(folder, AuthorityFile), a.pem, 0o644),
				replace(filepath.Join(folder, KeyFile), key, 0o600),
				replace(filepath.Join(folder, CertificateFile), cert, 0o644))
		}
		if err != nil {
			return nil, fmt.Errorf("make the certificate of %v: %w", n, err)
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	pem  []byte // content of ca.pem, which may also contain other trusted authorities
	key  crypto.Signer
}

// openAuthority reads the authority in a folder, or creates one.
func openAuthority(dir string, now time.Time) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, AuthorityFile), filepath.Join(dir, AuthorityKeyFile)
	keyText, err := os.ReadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(certFile); err == nil {
			return nil, fmt.Errorf("%w: %s has an authority without its key, %s: certificates are made where that is", kintsugi.ErrUsage, dir, AuthorityKeyFile)
		}
		return newAuthority(dir, now)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of the authority: %w", err)
	}
	a := &authority{}
	if a.pem, err = os.ReadFile(certFile); err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	certBlock, _ := pem.Decode(a.pem)
	keyBlock, _ := pem.Decode(keyText)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%w: %s and %s must be in PEM", kintsugi.ErrUsage, certFile, keyFile)
	}
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return nil, fmt.Errorf("%w: %s has no certificate: %w", kintsugi.ErrUsage, certFile, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s has no private key in PKCS #8: %w", kintsugi.ErrUsage, keyFile, err)
	}
	signer, ok := key.(crypto.Signer)
	public, comparable := a.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !comparable || !public.Equal(signer.Public()) {
		return nil, fmt.Errorf("%w: %s is not the key of the first certificate in %s", kintsugi.ErrUsage, keyFile, certFile)
	}
	a.key = signer
	return a, nil
}

func newAuthority(dir string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "kintsugi certs"},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	a := &authority{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	keyText, err := encodeKey(key)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = errors.Join(replace(filepath.Join(dir, AuthorityKeyFile), keyText, 0o600), replace(filepath.Join(dir, AuthorityFile), a.pem, 0o644))
	}
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return a, nil
}

// clockSkew is the assumed limit on differences between the clocks of hosts.
const clockSkew = time.Hour

// sign creates a key and its certificate.
func (a *authority) sign(n Name, o Order) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: n.String()}, // members of an etcd ensemble identify one another by it; otherwise it is only for people
		NotBefore: o.Now.Add(-clockSkew), NotAfter: o.Now.Add(o.Life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{n.URI()},

		BasicConstraintsValid: true,
	}
	if n.Role.serves() {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		for _, h := range append([]string{"localhost", "127.0.0.1", "::1"}, o.Hosts...) {
			if ip := net.ParseIP(h); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else if !slices.Contains(template.DNSNames, h) {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// replace replaces the content of a file atomically: readers see the old content or the new.
func replace(name string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the temporary file is incomplete
	}
	return err
}
