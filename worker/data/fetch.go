package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Options of [Fetch]. The zero value is ready to use.
type Options struct {
	// BaseURL replaces the publisher's address: the files are at BaseURL + "/" + name. A mirror
	// need not be trusted, since the checksums are those of the publisher's files.
	BaseURL string

	// Progress, if not nil, is called by the goroutine of Fetch: with done = 0 when a file begins,
	// then as bytes arrive, and once with done = total when the file is complete, even if it was
	// already there.
	Progress func(file string, done, total int64)

	// Stall is how long a server may send nothing before Fetch gives up. Default: one minute.
	Stall time.Duration
}

// Fetch downloads a data set into its own folder in dir, where [Open] with the same dir finds it.
// It creates dir if necessary. It keeps files that are already there and correct, and replaces
// other files.
//
// A file gets its name only when it is on disk with the right size and SHA-256. So an interrupted
// download leaves nothing that could be mistaken for data. If the bytes are wrong, the error wraps
// [kintsugi.ErrCorrupt]. Fetch blocks until everything is done or ctx ends. It does not retry or
// resume downloads.
func Fetch(ctx context.Context, name, dir string, options Options) error {
	s, err := findDownload(name)
	if err != nil {
		return err
	}
	if s.url == "" && options.BaseURL == "" {
		return fmt.Errorf("%w: nobody publishes data set %q in this form; where you have the files at an address, pass --base-url",
			kintsugi.ErrUsage, name)
	}
	if u, err := url.Parse(options.BaseURL); options.BaseURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%w: --base-url %q: write a URL such as https://mirror.example.org/data", kintsugi.ErrUsage, options.BaseURL)
	}
	if dir == "" {
		return fmt.Errorf("%w: fetch needs a folder to put data set %q in: pass --data-dir or set KINTSUGI_DATA",
			kintsugi.ErrUsage, name)
	}
	d := download{options: options, url: s.url, dir: filepath.Join(dir, s.folder)}
	if options.BaseURL != "" {
		d.url = strings.TrimSuffix(options.BaseURL, "/") + "/"
	}
	if d.options.Progress == nil {
		d.options.Progress = func(string, int64, int64) {}
	}
	if d.options.Stall == 0 {
		d.options.Stall = time.Minute
	}
	if err := os.MkdirAll(d.dir, 0o777); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	for _, f := range s.files {
		if err := d.fetch(ctx, f); err != nil {
			return fmt.Errorf("fetch %s: %w", d.url+f.name, err)
		}
	}
	return nil
}

// Verify compares the sizes and checksums of the files with those of the publisher. It reads the
// set's folder in dir, or dir itself if there is no such folder. It returns nil if all files are
// correct, an error that wraps [fs.ErrNotExist] if one is missing, and an error that wraps
// [kintsugi.ErrCorrupt] if one is wrong.
func Verify(name, dir string) error {
	s, err := findDownload(name)
	if err != nil {
		return err
	}
	place := filepath.Join(dir, s.folder)
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		place = dir
	}
	for _, f := range s.files {
		if err := f.verify(filepath.Join(place, f.name)); err != nil {
			return fmt.Errorf("verify data set %q: %w%s", name, err, s.advice(dir))
		}
	}
	return nil
}

// verify compares the file at path with the publisher's size and checksum.
func (f file) verify(path string) error {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(r, f.bytes+1))
	if err != nil {
		return err
	}
	if err := f.check(n, hash.Sum(nil)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// check compares a size and a checksum with those of the publisher. n may stop at bytes+1.
func (f file) check(n int64, sum []byte) error {
	switch got := hex.EncodeToString(sum); {
	case n > f.bytes:
		return corrupt("it is longer than the %d bytes expected", f.bytes)
	case n < f.bytes:
		return corrupt("it has %d bytes, expected %d", n, f.bytes)
	case got != f.sha256:
		return corrupt("its SHA-256 is %s, expected %s", got, f.sha256)
	}
	return nil
}

// download is the state of one call of Fetch.
type download struct {
	options Options
	url     string // ends in a slash
	dir     string
}

func (d *download) fetch(ctx context.Context, f file) (err error) {
	path := filepath.Join(d.dir, f.name)
	if f.verify(path) == nil {
		d.options.Progress(f.name, f.bytes, f.bytes)
		return nil
	}
	t, err := os.CreateTemp(d.dir, "."+f.name+".*")
	if err != nil {
		return err
	}
	defer func() {
		// If it was renamed, no file has this name any more.
		if gone := os.Remove(t.Name()); err == nil && !errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}()
	err = d.receive(ctx, f, t)
	if err == nil {
		err = t.Sync()
	}
	if closing := t.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	// Temporary files are private; the data should be readable by others.
	if err := os.Chmod(t.Name(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(t.Name(), path); err != nil {
		return err
	}
	if err := syncDir(d.dir); err != nil {
		return err
	}
	d.options.Progress(f.name, f.bytes, f.bytes)
	return nil
}

// syncDir makes the file names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// receive copies one file from the server to w and checks it.
func (d *download) receive(ctx context.Context, f file, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := fmt.Errorf("the server sent nothing for %v; try again, or another address", d.options.Stall)
	watch := time.AfterFunc(d.options.Stall, func() { cancel(stalled) })
	defer watch.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+f.name, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	// Without this, the client asks for gzip and decompresses, and the checksum would be that of
	// other bytes.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return cause(ctx, err)
		}
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // the error already has the address
		}
		return fmt.Errorf("%w; give a mirror with --base-url, or copy the files into %s by other means", err, d.dir)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %s; try again later, or another address", response.Status)
	}
	d.options.Progress(f.name, 0, f.bytes)
	hash := sha256.New()
	buffer := make([]byte, 64<<10)
	for done := int64(0); ; {
		n, err := response.Body.Read(buffer)
		watch.Reset(d.options.Stall)
		done += int64(n)
		if _, err := w.Write(buffer[:n]); err != nil {
			return err
		}
		hash.Write(buffer[:n])
		switch {
		case done > f.bytes || err == io.EOF:
			if err := f.check(done, hash.Sum(nil)); err != nil {
				return fmt.Errorf("%w: the download was removed; try again, or another address", err)
			}
			return nil
		case err == io.ErrUnexpectedEOF:
			return corrupt("the connection closed after %d of %d bytes; try again", done, f.bytes)
		case err != nil:
			return cause(ctx, err)
		}
		if done < f.bytes && n > 0 {
			d.options.Progress(f.name, done, f.bytes)
		}
	}
}

// cause returns the reason why ctx ended, if it did: "context canceled" would not say that the
// server stalled.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
