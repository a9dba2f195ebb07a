package kintsugi

import "errors"

// Errors that a caller can act on; test for them with errors.Is.
var (
	// ErrStaleView means that the message named a view or line that has been replaced. The receiver
	// applied nothing. Fetch the current view and connect again.
	ErrStaleView = errors.New("stale view")

	// ErrFenced means that someone with a larger fence has taken over. Stop: this process no longer decides.
	ErrFenced = errors.New("fenced")

	// ErrCorrupt means that bytes do not match their checksum or their format. They were not used.
	// Another copy may be intact.
	ErrCorrupt = errors.New("corrupt")

	// ErrNotFinite means that a gradient holds NaN or Inf. It was not applied.
	ErrNotFinite = errors.New("not finite")

	// ErrOtherModel means that the two sides hold different models or speak different protocol
	// versions. Trying again does not help.
	ErrOtherModel = errors.New("another model or version")

	// ErrUsage means that a flag, a setting or an argument is wrong. The process exits with status
	// 2; a coordinator, server or worker exits with 78.
	ErrUsage = errors.New("usage")
)
