package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// Options configures an embedded etcd. Zero fields mean the defaults.
type Options struct {
	// Log receives etcd's messages: its warnings as warnings, others at debug level. Default:
	// nothing is logged.
	Log *slog.Logger

	// Port is the loopback port for clients. Default: the port of the last start in this folder if
	// it is still free, so that the clients of an etcd that died find the next one; otherwise any
	// free port.
	Port int

	// UnsafeNoFsync makes etcd answer a write before it is on disk. Answered writes still survive
	// the death of any process, since the kernel has them. They do not survive a crash of the
	// machine or a power failure: the folder may then not open again, and the run continues from
	// its newest checkpoint with an empty etcd. A write takes a fraction of a millisecond on any
	// disk. It is meant for tests, and for runs on a single machine. Default: every write is
	// synced.
	UnsafeNoFsync bool

	// TLS makes the etcd and its clients prove their identity to each other, and lets each role
	// change only its own keys. The members of an Ensemble also prove their identity to each other,
	// by certificates with the common name "etcd". TLS cannot be turned on for an Ensemble that was
	// started without. Default: plain TCP, on which everyone who reaches the port may change all
	// keys.
	TLS *mtls.Credentials

	// Among, if set, makes this etcd a member of an ensemble. Default: it is alone.
	Among *Ensemble
}

// Embedded is an etcd inside this process. It is alone and listens on the loopback interface, or is
// a member of an Ensemble. Its methods are safe for concurrent use.
type Embedded struct {
	etcd     *embed.Etcd
	endpoint string
	failed   <-chan error
	close    sync.Once
	closing  *atomic.Bool // Close has begun
}

// Ticks of the raft clock. A single node has no peers to wait for, so the ticks only delay the
// start and determine the shortest lease, 1 s. With etcd's defaults of 100 ms and 1 s, a start
// takes ten times as long.
const (
	tickMillis     = 10
	electionMillis = 100
)

// etcd allocates the segments of its log when they begin, two at a time, and the last one stays in
// the folder of the run. A run writes a few keys for each failure, which does not fill a segment of
// this size. etcd's default is 64 MB.
func init() { wal.SegmentSizeBytes = 1 << 20 }

// portFile stores the client port in the folder, for the next start.
const portFile = "port"

// Embed starts an etcd with its data in the folder dir, which is created if necessary and may have
// the data of an earlier start. It returns when the etcd serves requests. If ctx ends before that,
// it gives up.
//
// Run it in the launcher, not in a process that a fault may kill: leases and views live only as
// long as it does. Only one process at a time may use dir; a second one waits for the first until
// ctx ends.
//
// Limitation: a start that fails on a damaged database may leave a goroutine and an open port
// behind.
func Embed(ctx context.Context, dir string, opt Options) (*Embedded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if opt.Among != nil {
		e, err := opt.Among.start(ctx, dir, opt)
		if err != nil {
			return nil, fmt.Errorf("start etcd %s in %s: %w", opt.Among.Name, dir, err)
		}
		return e, nil
	}
	port := opt.Port
	if port == 0 {
		port = lastPort(dir)
	}
	e, err := start(ctx, config(dir, port, opt), opt)
	if opt.Port == 0 && port != 0 && errors.Is(err, syscall.EADDRINUSE) {
		e, err = start(ctx, config(dir, 0, opt), opt) // someone took the port in the meantime
	}
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", dir, err)
	}
	_, bound, _ := net.SplitHostPort(e.endpoint)
	if err := os.WriteFile(filepath.Join(dir, portFile), []byte(bound+"\n"), 0o600); err != nil {
		e.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", dir, err)
	}
	return e, nil
}

// lastPort returns the client port of the last start in dir, or 0.
func lastPort(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, portFile))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || port < 1 || port > 65535 {
		return 0 // a damaged file only means that the old port is not used
	}
	return port
}

// errGaveUp means that etcd met a condition that would have ended its process.
var errGaveUp = errors.New("etcd gave up")

// start makes one attempt to start. With client port 0 the kernel chooses a port, so that no other
// process can take it in the meantime.
func start(ctx context.Context, cfg *embed.Config, opt Options) (*Embedded, error) {
	failed := make(chan error, 1) // the first fatal condition is reported, later ones are dropped
	closing := new(atomic.Bool)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(bridge(opt.Log, failed, closing))

	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		// If etcd cannot start, it ends this goroutine by a fatal log entry, or panics, sometimes
		// in a deferred function.
		r := result{err: errGaveUp}
		defer func() {
			if p := recover(); p != nil {
				r = result{err: fmt.Errorf("%w: %v", errGaveUp, p)}
			}
			started <- r
		}()
		r.etcd, r.err = embed.StartEtcd(cfg)
	}()
	abandon := func() {
		go func() { // a start cannot be interrupted; if it still succeeds, close the result
			if r := <-started; r.err == nil {
				r.etcd.Close()
			}
		}()
	}

	var r result
	select {
	case r = <-started:
	case r.err = <-failed: // reported by another goroutine of etcd; the start waits for it in vain
		abandon()
	case <-ctx.Done():
		abandon()
		return nil, fmt.Errorf("not started in time, does another process use the folder? %w", context.Cause(ctx))
	}
	if r.err != nil {
		select {
		case r.err = <-failed: // this error is closer to the cause
		default:
		}
		if errors.Is(r.err, errGaveUp) {
			r.err = fmt.Errorf("%w; if the folder is damaged, remove it and resume from the newest checkpoint", r.err)
		}
		return nil, r.err
	}
	e := &Embedded{etcd: r.etcd, endpoint: r.etcd.Clients[0].Addr().String(), failed: failed, closing: closing}
	select {
	case <-r.etcd.Server.ReadyNotify():
		return e, nil
	case why := <-failed:
		e.Close()
		return nil, why
	case <-ctx.Done():
		e.Close()
		return nil, fmt.Errorf("not ready in time: %w", context.Cause(ctx))
	}
}

// small returns a configuration for a few hundred small keys.
func small(dir string, opt Options) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.UnsafeNoFsync = opt.UnsafeNoFsync
	cfg.EnableGRPCGateway = false
	secure(cfg, opt.TLS)

	// A run writes a few keys for each failure: nobody lags behind by a thousand revisions.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, "1000"
	return cfg
}

// config returns the configuration of a single node.
func config(dir string, port int, opt Options) *embed.Config {
	cfg := small(dir, opt)
	cfg.Name = "kintsugi"
	cfg.TickMs, cfg.ElectionMs = tickMillis, electionMillis
	loopback := func(scheme string, port int) []url.URL {
		return []url.URL{{Scheme: scheme, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}}
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = loopback(scheme(opt), port), loopback(scheme(opt), port)
	// A node without peers: nobody dials the address that it advertises to them, but it must not
	// change.
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = loopback(scheme(opt), 0), loopback("http", 1)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	return cfg
}

// Endpoint returns the host:port for clients.
func (e *Embedded) Endpoint() string { return e.endpoint }

// Failed delivers at most one error: the condition, such as a full disk, that made etcd give up
// while the process lives on. Training goes on in the current view; a failover waits until an etcd
// is back.
func (e *Embedded) Failed() <-chan error { return e.failed }

// closeLimit is how long Close waits. A healthy etcd closes within a few milliseconds.
const closeLimit = 5 * time.Second

// Close stops the etcd. Its data stay in the folder for the next Embed. Close may be called twice.
func (e *Embedded) Close() {
	e.close.Do(func() {
		e.closing.Store(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.etcd.Close()
		}()
		select {
		case <-done:
		case <-time.After(closeLimit): // etcd has lost a goroutine to a fatal condition, and waits for it
		}
	})
}

// discard returns a logger that drops everything.
func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
