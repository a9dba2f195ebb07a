package etcd

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/lease"
	"go.uber.org/zap"
)

func TestAFatalEntryEndsItsGoroutineAndNotTheProcess(t *testing.T) {
	cause := errors.New("no space left on device")
	for _, write := range []func(*zap.Logger){
		func(l *zap.Logger) { l.Fatal("cannot save", zap.Error(cause)) },
		func(l *zap.Logger) { l.With(zap.Int("member", 1)).Panic("cannot save", zap.Error(cause)) },
	} {
		var b bytes.Buffer
		failed := make(chan error, 1)
		l := bridge(slog.New(slog.NewTextHandler(&b, nil)), failed, new(atomic.Bool))
		l.Info("chatter is for the debug level")
		l.Warn("slow disk", zap.Duration("took", time.Second))
		var writer sync.WaitGroup
		reached := false
		writer.Go(func() {
			write(l)
			reached = true
		})
		writer.Wait()
		if reached {
			t.Error("the goroutine went on after it gave up")
		}
		if err := <-failed; !errors.Is(err, cause) || !strings.Contains(err.Error(), "cannot save") {
			t.Errorf("failed with %v", err)
		}
		log := b.String()
		if strings.Contains(log, "chatter") || !strings.Contains(log, "slow disk") || !strings.Contains(log, "took=1s") {
			t.Errorf("log:\n%s", log)
		}
	}
}

// What etcd says of what it was meant to do is no warning, and a warning of something else is.
func TestWarningsOfWhatIsIntendedAreNone(t *testing.T) {
	var b bytes.Buffer
	closing := new(atomic.Bool)
	l := bridge(slog.New(slog.NewTextHandler(&b, nil)), make(chan error, 1), closing)
	l.Warn("simple token is not cryptographically signed")
	l.Warn("failed to apply request", zap.String("error", lease.ErrLeaseNotFound.Error()))
	l.Warn("Failed to detect schema version", zap.Error(errors.New("missing term information")))
	if b.Len() > 0 {
		t.Errorf("intended, and logged: %s", b.String())
	}
	l.Warn("failed to apply request", zap.String("error", "mvcc: database space exceeded"))
	if !strings.Contains(b.String(), "level=WARN") || !strings.Contains(b.String(), "space exceeded") {
		t.Errorf("a full database is logged as %q", b.String())
	}
	b.Reset()
	closing.Store(true)
	l.Warn("stopped insecure grpc server due to error", zap.Error(errors.New("use of closed network connection")))
	if b.Len() > 0 {
		t.Errorf("closing, and logged: %s", b.String())
	}
}

// From its beginning to its end, an etcd warns neither of how it is set up nor of being closed. (It
// may of a disk that is slow just then.)
func TestAnEtcdDoesNotWarnOfItsOwnWays(t *testing.T) {
	var b safeBuffer
	e, err := Embed(within(t), t.TempDir(), Options{Log: slog.New(slog.NewTextHandler(&b, nil)), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	for _, what := range []string{"Running http and grpc", "simple token", "missing term", "losed"} {
		if strings.Contains(b.String(), what) {
			t.Errorf("it warns of %q:\n%s", what, b.String())
		}
	}
}

// safeBuffer is a buffer for several writers.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestADamagedFolderIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, damage := range []string{"*.wal", "db"} {
		b := startEtcd(t)
		if _, err := b.dial(t).NextFence(within(t), 0); err != nil {
			t.Fatal(err)
		}
		b.Close()
		err := filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
			if ok, _ := filepath.Match(damage, filepath.Base(path)); ok && err == nil {
				return os.WriteFile(path, bytes.Repeat([]byte("kintsugi"), 8192), 0o600)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		child := exec.CommandContext(within(t), os.Args[0])
		child.Env = append(os.Environ(), damagedFolder+"="+b.dir)
		out, err := child.CombinedOutput()
		if err != nil {
			t.Errorf("%s: the process died of it: %v\n%s", damage, err, out)
		}
		if !strings.Contains(string(out), b.dir) || !strings.Contains(string(out), "resume from the newest checkpoint") {
			t.Errorf("%s: %s", damage, out)
		}
	}
}

func TestASecondEtcdInAFolderGivesUpWithItsContext(t *testing.T) {
	b := startEtcd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	e, err := Embed(ctx, b.dir, Options{UnsafeNoFsync: true})
	if err == nil {
		e.Close()
		t.Fatal("two etcds share a folder")
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process") {
		t.Error(err)
	}
}
