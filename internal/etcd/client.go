package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// root begins the key of every run.
const root = "/kintsugi/"

// Client accesses the keys of one run.
type Client struct {
	etcd   *clientv3.Client
	prefix string // root + "<run>/"

	revision revision                      // of etcd
	heard    atomic.Pointer[kintsugi.View] // the newest view that was read, put or watched; nil: none
}

// DialOption changes a default of Dial.
type DialOption func(*dialing)

type dialing struct {
	timeout        time.Duration
	tls            *mtls.Credentials
	user, password string
}

// WithTimeout sets how long Dial waits for an answer. Default: 5 s.
func WithTimeout(d time.Duration) DialOption { return func(o *dialing) { o.timeout = d } }

// WithTLS makes the client prove its identity and verify the etcd: one of this package, or another
// one with a certificate for its host and for no other role. nil means plain TCP, which is suitable
// only for loopback and private networks: everyone who can reach the etcd could end the run.
func WithTLS(c *mtls.Credentials) DialOption { return func(o *dialing) { o.tls = c } }

// WithLogin makes the client log in, as a user who may read and write all keys that begin with
// /kintsugi/. An etcd that asks for no user ignores it. Empty: the client does not log in.
func WithLogin(user, password string) DialOption {
	return func(o *dialing) { o.user, o.password = user, password }
}

// runName prevents the keys of one run from being a part of another's.
var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Dial returns a client for the keys of run as soon as one of the endpoints (host:port) has
// answered. The name consists of letters, digits, dots, dashes and underscores. Another name, or an
// empty list of endpoints, is an ErrUsage. The caller must Close the client.
func Dial(ctx context.Context, endpoints []string, run string, opts ...DialOption) (*Client, error) {
	o := dialing{timeout: 5 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	if !runName.MatchString(run) {
		return nil, fmt.Errorf("%w: run name %q: use up to 63 letters, digits, dots, dashes and underscores", kintsugi.ErrUsage, run)
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("%w: no etcd endpoint given", kintsugi.ErrUsage)
	}
	for _, e := range endpoints {
		if _, _, err := net.SplitHostPort(e); err != nil && !strings.Contains(e, "://") { // the library would try port 443 and wait
			return nil, fmt.Errorf("%w: etcd endpoint %q: use HOST:PORT, such as %s", kintsugi.ErrUsage, e, net.JoinHostPort(strings.Trim(e, "[]"), "2379"))
		}
	}
	var tls *mtls.Client
	var secured []grpc.DialOption
	if o.tls != nil {
		tls = o.tls.Client(mtls.Whom{Role: mtls.Etcd, Index: mtls.Any, Nameless: true})
		secured = append(secured, grpc.WithTransportCredentials(tls)) // replaces the client's own TLS, which does not reread authorities
	}
	config := clientv3.Config{
		Endpoints:            endpoints,
		Username:             o.user,
		Password:             o.password,
		DialKeepAliveTime:    10 * time.Second, // notices an etcd whose host has disappeared
		DialKeepAliveTimeout: 5 * time.Second,
		PermitWithoutStream:  true,
		Logger:               zap.NewNop(),
		// Processes of a run connect directly, whatever proxy the environment names.
		DialOptions: append(secured, grpc.WithNoProxy(), grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's default pause grows to two minutes: an etcd that is back would not be noticed
			// before the leases lapse.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		})),
	}
	bounded, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	client, err := reach(bounded, config, run)
	if err == nil {
		return client, nil
	}
	at := strings.Join(endpoints, ", ")
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("reach etcd at %s: %w", at, context.Cause(ctx))
	case tls != nil && tls.Failure() != nil:
		return nil, fmt.Errorf("reach %w", tls.Failure())
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("%s is not an etcd: something else answers there, perhaps a server of the run: %w", at, err)
	case bounded.Err() == nil: // it has answered
		return nil, fmt.Errorf("etcd at %s: %w%s", at, err, refused(err, o.user))
	}
	hint, why := unanswered(ctx, endpoints, tls != nil)
	return nil, fmt.Errorf("etcd at %s did not answer within %v: check that it runs, that the address is right and that no firewall is between%s: %w",
		at, o.timeout, hint, cmp.Or(why, err))
}

const (
	// loginTimeout is how long a login may take: etcd computes for a tenth of a second, and longer if
	// many log in at once. The library does not end a login before, whatever its context.
	loginTimeout = 5 * time.Second

	// leaseTimeout is how long a client waits for the first answer to a lease.
	leaseTimeout = 2 * time.Second
)

// reach returns a client once etcd has answered, or an error: that of ctx, or what etcd has said.
func reach(ctx context.Context, config clientv3.Config, run string) (*Client, error) {
	end, _ := ctx.Deadline()
	for {
		if config.Username != "" {
			config.DialTimeout = max(min(loginTimeout, time.Until(end)), time.Millisecond) // 0 would be no limit
		}
		c, err := clientv3.New(config)
		if err == nil {
			client := &Client{etcd: c, prefix: root + run + "/"}
			if _, err = c.Get(ctx, client.prefix, clientv3.WithCountOnly()); err != nil {
				c.Close()
				return nil, err
			}
			c.Lease.Close() // which has not begun
			c.Lease = clientv3.NewLeaseFromLeaseClient(clientv3.RetryLeaseClient(c), c, leaseTimeout)
			return client, nil
		}
		switch late := errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable; {
		case late && ctx.Err() == nil: // a client that logs in asks etcd at once, which may be still to come
		case late:
			return nil, ctx.Err()
		case errors.As(err, new(rpctypes.EtcdError)) || status.Code(err) != codes.Unknown:
			return nil, err
		default:
			return nil, fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
		}
	}
}

// refused says what to do if etcd refuses a user, or one is missing.
func refused(err error, user string) string {
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return ". It asks for a user: set KINTSUGI_ETCD_USER and KINTSUGI_ETCD_PASSWORD"
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return ": check KINTSUGI_ETCD_USER and KINTSUGI_ETCD_PASSWORD"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Sprintf(": give the user %s a role that may read and write keys with the prefix %s", user, root)
	}
	return ""
}

// unanswered looks for the reason why no endpoint has answered, which the library does not report.
// It tries plain connections, which meet errors such as an unknown host name. If a plain connection
// succeeds, one side may be without TLS, and the hint says so.
func unanswered(ctx context.Context, endpoints []string, secured bool) (hint string, why error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, e := range endpoints {
		if _, after, isURL := strings.Cut(e, "://"); isURL {
			e = after
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", e)
		if err == nil {
			conn.Close()
			if secured {
				return ", and that it was started with --tls as well", nil
			}
			return ", and if it was started with --tls use --tls here too", nil
		}
		if why == nil {
			why = err
		}
	}
	return "", why
}

// Close closes the connections. Close registrations and leaderships first: they cannot tell etcd of
// their end afterwards, and others would notice it only when the leases lapse.
func (c *Client) Close() error { return c.etcd.Close() }

// Runs returns the names of all runs that etcd has keys of, in alphabetical order.
func (c *Client) Runs(ctx context.Context) (names []string, err error) {
	for from := root; ; {
		r, err := c.etcd.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(root)), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return nil, fmt.Errorf("list the runs that etcd knows: %w", err)
		}
		if len(r.Kvs) == 0 {
			slices.Sort(names)
			return names, nil
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(string(r.Kvs[0].Key), root), "/")
		names = append(names, name)
		from = clientv3.GetPrefixRangeEnd(root + name + "/") // the first key after those of this run
	}
}

// conflicts is how often a transaction that lost a race is retried at once. Losing means that
// another process made progress, so many losses in a row mean that something is wrong.
const conflicts = 100

// errConflict means that a transaction lost its race every time.
var errConflict = errors.New("others changed the key each time")

// get returns the value of a key, its modification revision, and whether it is there.
func (c *Client) get(ctx context.Context, key string) (value []byte, revision int64, found bool, err error) {
	r, err := c.etcd.Get(ctx, c.prefix+key)
	if err != nil || len(r.Kvs) == 0 {
		return nil, 0, false, err
	}
	return r.Kvs[0].Value, r.Kvs[0].ModRevision, true, nil
}

// unchanged returns the condition that a key has not changed since it was read. Revision 0 means
// that it does not exist.
func (c *Client) unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.prefix+key), "=", revision)
}

// holds returns the condition that a key has the value v.
func (c *Client) holds(key string, v any) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(c.prefix+key), "=", encode(v))
}

// put returns the operation that stores v.
func (c *Client) put(key string, v any, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpPut(c.prefix+key, encode(v), opts...)
}

// encode returns v as JSON. It panics if v has no JSON form; all types used here have one.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("etcd: %T has no JSON form: %v", v, err))
	}
	return string(b)
}

// decode parses the value of a key. An invalid value is an ErrCorrupt.
func decode[T any](key string, b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("etcd key %s: %w: %w", key, kintsugi.ErrCorrupt, err)
	}
	return v, nil
}

// pause waits 100 to 200 ms before another attempt. The time is random, so that the processes of a
// run do not all ask at the same instant. It returns false if ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(100*time.Millisecond + rand.N(100*time.Millisecond)):
		return true
	case <-ctx.Done():
		return false
	}
}

// seconds returns d for a lease: in whole seconds, rounded up, at least one.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
