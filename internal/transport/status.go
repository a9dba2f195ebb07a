package transport

import (
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
)

// conditions pairs the errors that a caller can act on with gRPC status codes. Each code stands for
// one condition only, so that errors.Is gives the same answer on both sides of a stream.
var conditions = []struct {
	err  error
	code codes.Code
}{
	{kintsugi.ErrStaleView, codes.Aborted},
	{kintsugi.ErrFenced, codes.AlreadyExists},
	{kintsugi.ErrCorrupt, codes.DataLoss},
	{kintsugi.ErrNotFinite, codes.OutOfRange},
	{kintsugi.ErrOtherModel, codes.FailedPrecondition},
	{kintsugi.ErrUsage, codes.InvalidArgument},
}

// toWire converts a handler's error to the gRPC status of its condition. Only io.EOF itself is the
// orderly end of a stream: an error that wraps it reports something else that ended too soon.
func toWire(err error) error {
	if err == nil || err == io.EOF {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Unavailable, err.Error())
}

// fromWire converts a gRPC status back to an error that matches its condition.
func fromWire(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			return err
		}
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, c := range conditions {
		if s.Code() == c.code {
			return &remoteError{condition: c.err, message: s.Message()}
		}
	}
	message := s.Message()
	if s.Code() == codes.ResourceExhausted && strings.Contains(message, "larger than max") { // gRPC reports only the two lengths
		message += ": longer than a message of this run gets; " + sameEverywhere
	}
	return &remoteError{condition: err, message: message}
}

// remoteError is a condition that the other side reported, with its message.
type remoteError struct {
	condition error
	message   string
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.condition }
