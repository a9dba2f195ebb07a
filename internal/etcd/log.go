package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/lease"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge returns the logger for etcd, which writes to log. A fatal entry, on which etcd would end
// the whole process, ends only the goroutine that wrote it, and is sent to failed. Once closing is
// set, etcd warns of what it was asked to do, and nothing but debug entries come of that.
//
// Limitation: if a goroutine of etcd panics without a log entry, the process still ends.
func bridge(log *slog.Logger, failed chan<- error, closing *atomic.Bool) *zap.Logger {
	if log == nil {
		log = discard()
	}
	return zap.New(core{log, closing}, zap.WithFatalHook(last{failed}), zap.WithPanicHook(last{failed}))
}

// core passes entries of zap to slog. Errors of etcd become warnings, since training goes on
// without etcd.
type core struct {
	log     *slog.Logger
	closing *atomic.Bool
}

// intended reports whether etcd warns of how this program uses it.
func intended(message string, fields []zapcore.Field) bool {
	switch message {
	case "Running http and grpc server on single port. This is not recommended for production.": // for a load of a few keys it is
		return true
	case "simple token is not cryptographically signed": // there are no users: TLS says who may do what
		return true
	}
	return slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		text := f.String
		if err, ok := f.Interface.(error); ok {
			text = err.Error()
		}
		switch {
		case strings.HasSuffix(text, "missing term information"): // it is new, and looks for the version of what it has
			return true
		case message == "failed to apply request": // whoever sent it is told; that a lease has lapsed before it was given back is usual
			return text == lease.ErrLeaseNotFound.Error()
		}
		return false
	})
}

func (c core) Enabled(l zapcore.Level) bool {
	return l >= zapcore.FatalLevel || c.log.Enabled(context.Background(), level(l))
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.log.With(attrs(fields)...), c.closing}
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	to := level(e.Level)
	if to < slog.LevelError && (c.closing.Load() || intended(e.Message, fields)) {
		to = slog.LevelDebug
	}
	c.log.Log(context.Background(), to, "etcd: "+e.Message, attrs(fields)...)
	return nil
}

func (c core) Sync() error { return nil }

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.DPanicLevel:
		return slog.LevelError
	case l >= zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// attrs returns the fields as slog's alternating keys and values.
func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	kv := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		kv = append(kv, f.Key, enc.Fields[f.Key])
	}
	return kv
}

// last is the action after a fatal or panicking entry.
type last struct{ failed chan<- error }

func (l last) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("%w: %s", errGaveUp, e.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	select {
	case l.failed <- err:
	default:
	}
	runtime.Goexit()
}
