package mtls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Role is the role of a process. Roles are written in certificates: never rename one.
type Role string

// The roles.
const (
	Operator    Role = "operator"    // a person, or kintsugi train, which starts and watches a run for a person
	Coordinator Role = "coordinator" // decides views
	Server      Role = "server"      // holds shards; one of them conducts
	Worker      Role = "worker"      // computes gradients
	Etcd        Role = "etcd"        // keeps views and leases
	Memory      Role = "memory"      // keeps checkpoints in its memory
)

// Roles returns all roles.
func Roles() []Role { return []Role{Operator, Coordinator, Server, Worker, Etcd, Memory} }

// serves reports whether processes of a role accept connections.
func (r Role) serves() bool { return r == Server || r == Etcd || r == Memory }

// Any is the index of a Name that stands for all places of its role.
const Any = -1

// Every is the index of a process that may have any place, one after the other. Its certificate must
// be for all places of its role.
const Every = -2

// Name is the identity of a process. In a certificate it is the URI spiffe://DOMAIN/kintsugi/ROLE
// among the subject alternative names, or spiffe://DOMAIN/kintsugi/ROLE/INDEX for a single place of
// a run. This is the form of a SPIFFE ID; Domain is its trust domain. Processes trust only their
// own domain, so several runs can share an authority and still be separate.
type Name struct {
	Domain string
	Role   Role
	Index  int // place of a server or worker in its run; Any: all places
}

// ParsePlace parses ROLE or ROLE/INDEX, such as worker/3, which Name.String returns. Other text is
// an ErrUsage.
func ParsePlace(text string) (Name, error) {
	role, index, one := strings.Cut(text, "/")
	n := Name{Role: Role(role), Index: Any}
	if !slices.Contains(Roles(), n.Role) {
		return Name{}, fmt.Errorf("%w: there is no role %q; roles are %s", kintsugi.ErrUsage, role, listed(Roles()))
	}
	if one {
		i, err := strconv.ParseUint(index, 10, 31)
		if err != nil || strconv.FormatUint(i, 10) != index || n.Role != Server && n.Role != Worker {
			return Name{}, fmt.Errorf("%w: %q is no place; a place is that of a server or worker, such as worker/3", kintsugi.ErrUsage, text)
		}
		n.Index = int(i)
	}
	return n, nil
}

// String returns the name without its domain.
func (n Name) String() string {
	if n.Index == Any {
		return string(n.Role)
	}
	return fmt.Sprintf("%s/%d", n.Role, n.Index)
}

// URI returns the name in the form used in certificates.
func (n Name) URI() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: n.Domain, Path: pathPrefix + n.String()}
}

const pathPrefix = "/kintsugi/"

// is reports whether a name is that of the given place of a role; index Any means any place.
func (n Name) is(r Role, index int) bool {
	return n.Role == r && (n.Index == Any || index == Any || n.Index == index)
}

// errNameless means that a certificate has no role.
var errNameless = errors.New("no URI of the form spiffe://DOMAIN/kintsugi/ROLE is among its subject alternative names")

// nameOf returns the only name in a certificate. It ignores URIs of another form.
func nameOf(cert *x509.Certificate) (Name, error) {
	var names []Name
	for _, u := range cert.URIs {
		place, ours := strings.CutPrefix(u.Path, pathPrefix)
		if u.Scheme != "spiffe" || !ours {
			continue
		}
		n, err := ParsePlace(place)
		if err != nil || !validDomain(u.Host) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return Name{}, fmt.Errorf("its URI %s is not of the form spiffe://DOMAIN/kintsugi/ROLE or, for a server or worker, .../ROLE/INDEX", u)
		}
		n.Domain = u.Host
		names = append(names, n)
	}
	switch len(names) {
	case 0:
		return Name{}, errNameless
	case 1:
		return names[0], nil
	}
	return Name{}, fmt.Errorf("it names both %v and %v: a certificate is for one role", names[0], names[1])
}

// validDomain reports whether a text may be a trust domain: up to 255 lower-case letters, digits,
// dots, dashes and underscores.
func validDomain(text string) bool {
	return text != "" && len(text) <= 255 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// listed formats roles for a sentence.
func listed(roles []Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}
