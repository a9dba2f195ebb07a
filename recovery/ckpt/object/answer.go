package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// answer is what a store has said to a request that it did not carry out.
type answer struct {
	status        int
	code, message string
}

// err converts an answer to an error that says what to do, and that FS can act on. Codes and status
// that mean something else in one protocol are that protocol's to convert before.
func (a answer) err(p Place) error {
	a.code = cmp.Or(a.code, http.StatusText(a.status))
	switch {
	case a.status == http.StatusPreconditionFailed:
		return fs.ErrExist
	case a.status == http.StatusNotImplemented || a.code == "NotImplemented":
		return fmt.Errorf("%s cannot do what checkpoints need, such as conditional writes: %s", p.where(), a.message)
	case a.status == http.StatusInsufficientStorage || strings.Contains(a.code, "StorageFull") || strings.Contains(strings.ToLower(a.code), "quota"):
		return fmt.Errorf("%s is full: %s: %w", p.where(), a.message, syscall.ENOSPC)
	case a.status == http.StatusForbidden || a.status == http.StatusUnauthorized:
		return p.refuses(a.code)
	case a.status >= 500 || a.status == http.StatusOK || a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout || a.status == http.StatusConflict:
		return fmt.Errorf("%w: %s: %d %s", ErrAway, p.where(), a.status, a.code)
	}
	return fmt.Errorf("%s: %d %s: %s", p.where(), a.status, a.code, a.message)
}

// noBucket, refuses and silent return errors that every protocol has.
func (p Place) noBucket() error {
	return fmt.Errorf("%s does not exist: create it, or correct --store", p.where())
}

func (p Place) refuses(code string) error {
	return fmt.Errorf("%s refuses (%s): check %s, and what they allow: %w", p.where(), code, p.keys(), fs.ErrPermission)
}

func (p Place) silent(err error) error {
	return fmt.Errorf("%w: %s: %v", ErrAway, p.where(), unsigned(err))
}

// unsigned returns an error without what follows the path of an address, which may be a signature
// (AZURE_STORAGE_SAS_TOKEN) that lets whoever reads it in.
func unsigned(err error) error {
	e, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	at, _, _ := strings.Cut(e.URL, "?")
	return fmt.Errorf("%s %s: %w", e.Op, at, unsigned(e.Err))
}

// impostor is the error if what answers is not the store: a proxy, or a page to sign in to a network.
func (p Place) impostor() error {
	return fmt.Errorf("%w: whatever answers at %s is no object store", ErrAway, p.Endpoint)
}

// lengthless is the error if the store does not say how long an object is.
func lengthless(where, name string) error {
	return fmt.Errorf("%s does not say how long %s is: no proxy may change its answers", where, name)
}

// unread returns what Begin does where a store has sent nothing of an object: it is empty, or there is
// none, and Stat says which.
func unread(ctx context.Context, s Store, name string) (size int64, err error) {
	if size, err = s.Stat(ctx, name); err == nil && size > 0 {
		return 0, fmt.Errorf("%w: there are %d bytes of %s, and they were not sent", ErrAway, size, name)
	}
	return size, err
}

// begin is fill for the first bytes of an object, and returns how long it is. length is that of the
// body, −1 if the answer does not say it.
func begin(where, name string, b []byte, body io.Reader, length int64, contentRange string) (size int64, err error) {
	size, last := length, int64(0)
	if contentRange != "" {
		if n, _ := fmt.Sscanf(contentRange, "bytes 0-%d/%d", &last, &size); n != 2 { // the error says less than the text
			return 0, fmt.Errorf("%s answers with other bytes (%q) than the first ones of %s, which were asked for", where, contentRange, name)
		}
	}
	if size < 0 {
		return 0, lengthless(where, name)
	}
	return size, fill(where, name, b[:min(int64(len(b)), size)], body, 0, "")
}

// span is the value of the header Range for n bytes from offset on, which are part of an object.
func span(offset int64, n int) string { return fmt.Sprintf("bytes=%d-%d", offset, offset+int64(n)-1) }

// fill reads b from the body of an answer to a request for the bytes of an object from offset on.
// contentRange is that header of the answer.
func fill(where, name string, b []byte, body io.Reader, offset int64, contentRange string) error {
	if !strings.HasPrefix(contentRange, fmt.Sprintf("bytes %d-", offset)) && (offset > 0 || contentRange != "") {
		// These bytes would be taken for damage, and an older checkpoint would be used.
		return fmt.Errorf("%s answers with other bytes (%q) than those at %d of %s that were asked for", where, contentRange, offset, name)
	}
	if _, err := io.ReadFull(body, b); err != nil {
		// Not %w: the end of the connection is not the end of the object.
		return fmt.Errorf("%w: %d bytes at %d of %s broke off: %v", ErrAway, len(b), offset, name, err)
	}
	return nil
}
