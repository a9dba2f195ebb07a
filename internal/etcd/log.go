package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge returns the logger for etcd, which writes to log. A fatal entry, on which etcd would end
// the whole process, ends only the goroutine that wrote it, and is sent to failed.
//
// Limitation: if a goroutine of etcd panics without a log entry, the process still ends.
func bridge(log *slog.Logger, failed chan<- error) *zap.Logger {
	if log == nil {
		log = discard()
	}
	return zap.New(core{log}, zap.WithFatalHook(last{failed}), zap.WithPanicHook(last{failed}))
}

// core passes entries of zap to slog. Errors of etcd become warnings, since training goes on
// without etcd.
type core struct{ log *slog.Logger }

func (c core) Enabled(l zapcore.Level) bool {
	return l >= zapcore.FatalLevel || c.log.Enabled(context.Background(), level(l))
}

func (c core) With(fields []zapcore.Field) zapcore.Core { return core{c.log.With(attrs(fields)...)} }

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), level(e.Level), "etcd: "+e.Message, attrs(fields)...)
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
