package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// The published files are too large to serve here, so these tests fetch a file of their own, which
// is large enough to arrive in pieces.
var (
	content   = []byte(strings.Repeat("all that glitters is gold in the cracks. ", 5000))
	testFile  = file{"train-images-idx3-ubyte.gz", int64(len(content)), sum(content)}
	otherFile = []byte(strings.Repeat("all that glitters is dust in the cracks. ", 5000))
)

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// receive fetches testFile from a server with the given handler.
func receive(t *testing.T, ctx context.Context, dir string, handler http.HandlerFunc, options Options) error {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	if options.Progress == nil {
		options.Progress = func(string, int64, int64) {}
	}
	if options.Stall == 0 {
		options.Stall = time.Minute
	}
	d := download{options: options, url: server.URL + "/", dir: dir}
	return d.fetch(ctx, testFile)
}

func serve(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(b) }
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	names, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFetchKeepsWhatIsRightAndReplacesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	requests := 0
	var progress []string
	once := func() error {
		progress = nil
		return receive(t, t.Context(), dir, func(w http.ResponseWriter, r *http.Request) {
			requests++
			if r.URL.Path != "/"+testFile.name || r.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("request for %s with %v", r.URL.Path, r.Header)
			}
			w.Write(content)
		}, Options{Progress: func(file string, done, total int64) {
			progress = append(progress, fmt.Sprint(file, done, total))
		}})
	}
	path := filepath.Join(dir, testFile.name)
	complete := fmt.Sprint(testFile.name, len(content), len(content))
	for _, c := range []struct {
		name    string
		before  []byte
		request int
	}{
		{"missing", nil, 1}, {"right", content, 1}, {"wrong", otherFile, 2}, {"short", content[:99], 3},
		{"long", append(slices.Clone(content), 'x'), 4},
	} {
		if c.before != nil {
			write(t, c.before, path)
		}
		if err := once(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !slices.Equal(got, content) {
			t.Errorf("%s: other content (%v)", c.name, err)
		}
		if requests != c.request {
			t.Errorf("%s: %d requests so far, want %d", c.name, requests, c.request)
		}
		if n := len(progress); n == 0 || progress[n-1] != complete || slices.Index(progress, complete) != n-1 {
			t.Errorf("%s: progress %v, want it to end in %q, once", c.name, progress, complete)
		}
		if names := namesIn(t, dir); len(names) != 1 {
			t.Errorf("%s: left %v", c.name, names)
		}
	}
}

// Whatever the server does, no file with the name of the data appears, and no other file is left.
func TestBadDownloadsLeaveNothingBehind(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		corrupt bool
		want    string
	}{
		{"wrong bytes", serve(otherFile), true, "its SHA-256 is " + sum(otherFile) + ", expected " + testFile.sha256},
		{"too short", serve(content[:100]), true, "it has 100 bytes, expected 205000"},
		{"too long", serve(append(slices.Clone(content), content...)), true, "longer than the 205000 bytes"},
		{"connection lost", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:1000])
		}, true, "the connection closed after 1000 of 205000 bytes"},
		{"not there", http.NotFound, false, "the server answered 404 Not Found"},
		{"compressed on the way", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zip(content))
		}, true, "bytes, expected 205000"},
	} {
		dir := t.TempDir()
		err := receive(t, t.Context(), dir, c.handler, Options{})
		if err == nil || errors.Is(err, kintsugi.ErrCorrupt) != c.corrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant it to say %q, and to be about corruption: %v", c.name, err, c.want, c.corrupt)
		}
		if names := namesIn(t, dir); len(names) > 0 {
			t.Errorf("%s: left %v", c.name, names)
		}
	}
}

// hang sends the first bytes, and then nothing until the client goes.
func hang(w http.ResponseWriter, r *http.Request) {
	w.Write(content[:1000])
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func TestCancelEndsASlowDownload(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	err := receive(t, ctx, dir, hang, Options{Progress: func(_ string, done, _ int64) {
		if done > 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	if names := namesIn(t, dir); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

func TestAServerThatStopsSendingIsGivenUp(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"in the middle": hang,
		"at once":       func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		dir := t.TempDir()
		err := receive(t, t.Context(), dir, handler, Options{Stall: 20 * time.Millisecond})
		if want := "the server sent nothing for 20ms"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if names := namesIn(t, dir); len(names) > 0 {
			t.Errorf("%s: left %v", name, names)
		}
	}
}

func TestWhoReachesNoPublisherIsToldAnotherWay(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	dir := t.TempDir()
	err := Fetch(t.Context(), "mnist", dir, Options{BaseURL: server.URL})
	if err == nil {
		t.Fatal("fetched from nobody")
	}
	want := "connection refused; give a mirror with --base-url, or copy the files into " + dir
	if said := err.Error(); !strings.Contains(said, want) || strings.Count(said, server.URL) != 1 {
		t.Errorf("%v; want %q, and the address once", err, want)
	}
}

func TestFetchNamesTheAddressAndMakesTheFolder(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "a", "b")
	for _, base := range []string{server.URL + "/mirror", server.URL + "/mirror/"} {
		err := Fetch(t.Context(), "mnist", dir, Options{BaseURL: base})
		if want := server.URL + "/mirror/train-images-idx3-ubyte.gz: "; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to name %s", err, want)
		}
	}
	if names := namesIn(t, filepath.Join(dir, "mnist")); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

func TestOnlyPublishedSetsAreFetchedAndVerified(t *testing.T) {
	for _, name := range []string{"digits", "text", "idx", "imagenet"} {
		if err := Fetch(t.Context(), name, t.TempDir(), Options{}); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("fetch %s: %v, want ErrUsage", name, err)
		}
		if err := Verify(name, t.TempDir()); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("verify %s: %v, want ErrUsage", name, err)
		}
	}
	if err := Fetch(t.Context(), "mnist", "", Options{}); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("fetch without a folder: %v, want ErrUsage", err)
	}
	dir := t.TempDir()
	if err := Verify("mnist", dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "kintsugi data fetch mnist") {
		t.Errorf("verify without files: %v", err)
	}
	path := write(t, []byte("gold"), dir, "mnist", "train-images-idx3-ubyte.gz")
	if err := Verify("mnist", dir); !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("verify a wrong file: %v", err)
	}
}

// If the published files are at hand, a mirror serves them, and Fetch fetches them completely.
func TestFetchFromAMirrorOpens(t *testing.T) {
	race.Skip(t)
	source := os.Getenv("KINTSUGI_DATA")
	if source == "" {
		t.Skip("set KINTSUGI_DATA to the folder that holds mnist (kintsugi data fetch)")
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(source, "mnist"))))
	defer server.Close()
	dir := t.TempDir()
	if err := Fetch(t.Context(), "mnist", dir, Options{BaseURL: server.URL}); err != nil {
		t.Fatal(err)
	}
	if err := Verify("mnist", dir); err != nil {
		t.Error(err)
	}
	if _, err := Open("mnist", dir); err != nil {
		t.Error(err)
	}
}
