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
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// Options tunes an embedded etcd. Zero fields mean the defaults given here.
type Options struct {
	// Log receives what etcd has to say: its warnings as warnings, the rest at debug level.
	// Default: nothing is logged.
	Log *slog.Logger

	// Port is the loopback port for clients. Default: the port of the last start in this folder where it is
	// still free, so that the clients of an etcd that died find the next one; else any free port.
	Port int

	// UnsafeNoFsync answers a write before it is on disk. Whatever etcd has answered still survives the death
	// of every process, since the kernel holds it; it does not survive a crash of the machine or a loss of
	// power, after which the folder may not open again and the run goes on from its newest checkpoint with an
	// empty etcd. A write then takes a fraction of a millisecond whatever the disk. For tests, and for runs
	// whose machine is all they have. Default: every write is synced.
	UnsafeNoFsync bool

	// TLS makes the etcd and those that reach it prove to each other who they are, and lets each
	// role change the keys that are its to change. An Ensemble proves it among itself as well; its
	// certificates have the common name "etcd". It cannot be turned on for an Ensemble that has
	// begun without. Default: plain TCP, on which whoever reaches the port may change all keys.
	TLS *mtls.Credentials

	// Among, if set, makes this etcd one of several that hold the same keys. Default: it is alone.
	Among *Ensemble
}

// Embedded is an etcd that runs inside this process: alone, and listening on the loopback
// interface, or one of an Ensemble. Its methods are safe for concurrent use.
type Embedded struct {
	etcd     *embed.Etcd
	endpoint string
	failed   <-chan error
	close    sync.Once
}

// Ticks of the raft clock. The node has no peers to wait for, so they only delay the start and set the
// smallest lease, 1 s. With etcd's own 100 ms and 1 s a start takes ten times as long.
const (
	tickMillis     = 10
	electionMillis = 100
)

// The pieces of etcd's log take their room when they begin, two at a time, and the last one stays
// in the folder of the run. A run writes a few keys for each failure, which does not fill a piece
// of this size; etcd's own have 64 MB.
func init() { wal.SegmentSizeBytes = 1 << 20 }

// portFile remembers the client port, inside the folder, for the next start.
const portFile = "port"

// Embed starts an etcd whose data are in the folder dir, which is created if absent and may hold those of
// an earlier start. It returns once requests are served. When ctx ends before that, the start is given up.
//
// It belongs in the launcher, never in a process that a fault may kill: leases and views live as long as
// it does. Only one process at a time may use dir; a second one waits for the first, until ctx ends.
//
// Limitation: a start that fails on a damaged database may leave a goroutine and a port behind.
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

// lastPort returns the client port of the last start in dir, 0 where there was none.
func lastPort(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, portFile))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || port < 1 || port > 65535 {
		return 0 // a damaged file costs the old port, no more
	}
	return port
}

// errGaveUp means that etcd met a condition that would have ended its process.
var errGaveUp = errors.New("etcd gave up")

// start runs one attempt. A client port of 0 lets the kernel choose, without a window in which
// another process could take the port.
func start(ctx context.Context, cfg *embed.Config, opt Options) (*Embedded, error) {
	failed := make(chan error, 1) // the first fatal condition is the one to tell; later ones are dropped
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(bridge(opt.Log, failed))

	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		// etcd ends a start that it cannot survive by a fatal log entry, which ends this goroutine, or by a
		// panic, sometimes in what it deferred.
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
		go func() { // a start cannot be interrupted; whatever it still brings is closed
			if r := <-started; r.err == nil {
				r.etcd.Close()
			}
		}()
	}

	var r result
	select {
	case r = <-started:
	case r.err = <-failed: // in another goroutine of etcd, for which the start now waits in vain
		abandon()
	case <-ctx.Done():
		abandon()
		return nil, fmt.Errorf("not started in time, does another process use the folder? %w", context.Cause(ctx))
	}
	if r.err != nil {
		select {
		case r.err = <-failed: // closer to the cause
		default:
		}
		if errors.Is(r.err, errGaveUp) {
			r.err = fmt.Errorf("%w; if the folder is damaged, remove it and resume from the newest checkpoint", r.err)
		}
		return nil, r.err
	}
	e := &Embedded{etcd: r.etcd, endpoint: r.etcd.Clients[0].Addr().String(), failed: failed}
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

// small returns settings for a few hundred small keys.
func small(dir string, opt Options) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.UnsafeNoFsync = opt.UnsafeNoFsync
	cfg.EnableGRPCGateway = false
	secure(cfg, opt.TLS)

	// A run writes a few keys per failure: a thousand revisions are more than anyone watches behind.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, "1000"
	return cfg
}

// config returns the settings of a single node.
func config(dir string, port int, opt Options) *embed.Config {
	cfg := small(dir, opt)
	cfg.Name = "kintsugi"
	cfg.TickMs, cfg.ElectionMs = tickMillis, electionMillis
	loopback := func(scheme string, port int) []url.URL {
		return []url.URL{{Scheme: scheme, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}}
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = loopback(scheme(opt), port), loopback(scheme(opt), port)
	// The node has no peers: nobody ever dials what it advertises to them, which must stay the same.
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = loopback(scheme(opt), 0), loopback("http", 1)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	return cfg
}

// Endpoint returns the host:port at which clients reach the etcd.
func (e *Embedded) Endpoint() string { return e.endpoint }

// Failed delivers at most one error: the condition, such as a full disk, that made etcd give up while the
// process lives on. Training goes on in the current view; a failover waits until an etcd is back.
func (e *Embedded) Failed() <-chan error { return e.failed }

// closeLimit bounds how long Close waits; a healthy etcd closes within a few milliseconds.
const closeLimit = 5 * time.Second

// Close stops the etcd. What it holds stays in its folder for the next Embed. Close may be called twice.
func (e *Embedded) Close() {
	e.close.Do(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.etcd.Close()
		}()
		select {
		case <-done:
		case <-time.After(closeLimit): // it has lost a goroutine to a fatal condition and waits for it
		}
	})
}

// discard is where logs go that nobody asked for.
func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
