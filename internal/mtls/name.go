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

// Role is what a process is for. Roles are parts of certificates: never rename one.
type Role string

// The roles.
const (
	Operator    Role = "operator"    // a person, and kintsugi train, which starts and watches a run for one
	Coordinator Role = "coordinator" // decides views
	Server      Role = "server"      // holds shards; one of them conducts
	Worker      Role = "worker"      // computes gradients
	Etcd        Role = "etcd"        // keeps views and leases
	Memory      Role = "memory"      // keeps checkpoints in its memory
)

// Roles returns all roles.
func Roles() []Role { return []Role{Operator, Coordinator, Server, Worker, Etcd, Memory} }

// serves reports whether processes of a role are dialled by others.
func (r Role) serves() bool { return r == Server || r == Etcd || r == Memory }

// Any is the index of a Name that is every place of its role.
const Any = -1

// Name is who somebody is: among the subject alternative names of the certificate it is the URI
// spiffe://DOMAIN/kintsugi/ROLE, or spiffe://DOMAIN/kintsugi/ROLE/INDEX for one place of a run
// alone. That is the form of a SPIFFE ID, whose trust domain is the domain here: processes believe
// no other domain than their own, so that several runs may have one authority and still be apart.
type Name struct {
	Domain string
	Role   Role
	Index  int // of a server or worker in its run; Any: all of them
}

// ParsePlace reads ROLE or ROLE/INDEX, such as worker/3, which Name.String writes. Anything else is an ErrUsage.
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

// URI returns the name as certificates have it.
func (n Name) URI() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: n.Domain, Path: pathPrefix + n.String()}
}

const pathPrefix = "/kintsugi/"

// is reports whether a name is that of a place of a role; Any: of some.
func (n Name) is(r Role, index int) bool {
	return n.Role == r && (n.Index == Any || index == Any || n.Index == index)
}

// errNameless means that a certificate says nothing of a role.
var errNameless = errors.New("no URI of the form spiffe://DOMAIN/kintsugi/ROLE is among its subject alternative names")

// nameOf returns the one name in a certificate. URIs of another form are not looked at.
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

// validDomain reports whether a text may be a trust domain: up to 255 small letters, digits, dots,
// dashes and underscores.
func validDomain(text string) bool {
	return text != "" && len(text) <= 255 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// listed returns roles for a sentence.
func listed(roles []Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}
