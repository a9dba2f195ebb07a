package object_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
)

// quick are retries that are short enough for a test.
var quick = object.Retries{Tries: 4, First: time.Microsecond, Timeout: 10 * time.Second, Rate: 1 << 18}

// keys sets what S3 reads from the environment.
func keys(t *testing.T, key string) {
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", objecttest.Secret)
	t.Setenv("AZURE_STORAGE_KEY", objecttest.AccountKey)
}

func open(t *testing.T, place string) object.Store {
	t.Helper()
	p, err := object.ParsePlace(place, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	s, err := object.Open(t.Context(), p, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fakes lists the protocols of stores by their servers for tests.
var fakes = map[string]func(testing.TB) *objecttest.Server{
	"s3": objecttest.New,
	"gs": objecttest.NewGoogle,
	"az": objecttest.NewAzure,
}

// stores lists the stores on which FS must behave the same. Those that are real servers skip where
// there is none.
func stores(t *testing.T) map[string]func(*testing.T) object.Store {
	keys(t, objecttest.Key)
	all := map[string]func(*testing.T) object.Store{
		"memory": func(*testing.T) object.Store { return &object.Mem{} },
		"keeper": func(t *testing.T) object.Store { return object.OpenMemory(keep(t, object.NewKeeper(1<<30)), nil) },
	}
	for name, start := range objecttest.Others() {
		all[name] = func(t *testing.T) object.Store { return open(t, start(t, os.Getenv)("x")) }
	}
	for name, fake := range fakes {
		all[name] = func(t *testing.T) object.Store { return open(t, fake(t).Place("x")) }
	}
	return all
}

// keep serves a keeper until the test ends, and returns its address.
func keep(t *testing.T, k *object.Keeper) (address string) {
	s := httptest.NewServer(k)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func write(fsys vfs.FS, name string, pieces ...[]byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if _, err := f.Write(p); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b) // it never fails
	return b
}

func TestFilesOfAStoreAreThoseOfADisk(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			fsys := object.NewFS(t.Context(), s, quick)
			if _, err := fsys.Open("run/a"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("open what does not exist: %v", err)
			}
			if names, err := fsys.List("run"); err != nil || len(names) > 0 {
				t.Fatalf("list nothing: %v, %v", names, err)
			}
			f, err := fsys.Create("run/a/one")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte("one")); err != nil {
				t.Fatal(err)
			}
			if _, err := fsys.Stat("run/a/one"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("a file is seen before it is synced: %v", err)
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := fsys.Create("run/a/one"); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("create what exists: %v", err)
			}
			if err := fsys.Publish("run/a/one", []byte("two")); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("publish what exists: %v", err)
			}
			if err := errors.Join(fsys.Publish("run/a/two", nil), fsys.Publish("run/b", []byte("b"))); err != nil {
				t.Fatal(err)
			}
			if names, err := fsys.List("/run/"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
				t.Fatalf("list run: %v, %v", names, err)
			}
			if err := fsys.Rename("run/a/one", "run/c"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(fsys.Remove("run/a/two"), fsys.Remove("run/a/two")); err != nil {
				t.Fatal(err)
			}
			if names, err := fsys.List("run"); err != nil || !slices.Equal(names, []string{"b", "c"}) {
				t.Fatalf("list run: %v, %v", names, err)
			}
			if err := fsys.Probe("run"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLargeObjectsGoInPartsAndComeBack(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			fsys := object.NewFS(t.Context(), s, quick)
			lengths := []int{0, 1, object.PartBytes + 1}
			if !testing.Short() {
				lengths = append(lengths, object.PartBytes, 2*object.PartBytes+12345)
			}
			for _, n := range lengths {
				want, file := random(n), fmt.Sprint("large/", n)
				if err := write(fsys, file, want[:n/3], want[n/3:n/3], want[n/3:]); err != nil {
					t.Fatal(err)
				}
				f, err := fsys.Open(file)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(io.NewSectionReader(f, 0, int64(n)+7))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes came back as %d that are equal: %t; %v", n, len(got), bytes.Equal(got, want), err)
				}
			}
		})
	}
}

// readable returns a file that is open, longer than what comes with its opening, and its content.
func readable(t *testing.T) (vfs.File, []byte) {
	fsys := object.NewFS(t.Context(), &object.Mem{}, quick)
	want := random(1_500_000)
	if err := write(fsys, "x", want); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open("x")
	if err != nil {
		t.Fatal(err)
	}
	return f, want
}

func TestReadsAnywhereAreThoseOfTheBytes(t *testing.T) {
	f, want := readable(t)
	rng := rand.New(rand.NewPCG(3, 4))
	at := 0
	for range 3000 {
		if rng.IntN(3) == 0 {
			at = rng.IntN(len(want) + 10)
		}
		p := make([]byte, rng.IntN(5000))
		n, err := f.ReadAt(p, int64(at))
		end := min(at+len(p), max(at, len(want)))
		if short := at+len(p) > len(want); n != max(0, min(end, len(want))-at) || (err == io.EOF) != short || err != nil && err != io.EOF {
			t.Fatalf("%d bytes at %d of %d: %d, %v", len(p), at, len(want), n, err)
		}
		if n > 0 && !bytes.Equal(p[:n], want[at:at+n]) {
			t.Fatalf("%d bytes at %d are others", n, at)
		}
		at += n
	}
}

func TestManyMayReadOneFile(t *testing.T) {
	f, want := readable(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			at := 0
			for range 1000 {
				if rng.IntN(3) == 0 {
					at = rng.IntN(len(want))
				}
				p := make([]byte, min(rng.IntN(5000), len(want)-at))
				if n, err := f.ReadAt(p, int64(at)); err != nil || !bytes.Equal(p, want[at:at+len(p)]) {
					t.Errorf("%d of %d bytes at %d: %v", n, len(p), at, err)
				}
				at += len(p)
			}
		})
	}
	all.Wait()
}

func TestOfManyWhoCreateOneNameOneDoes(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			var all sync.WaitGroup
			var won, lost atomic.Int32
			for i := range 8 {
				all.Go(func() {
					err := object.NewFS(t.Context(), s, quick).Publish("contested", []byte{byte(i)})
					switch {
					case err == nil:
						won.Add(1)
					case errors.Is(err, fs.ErrExist):
						lost.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			all.Wait()
			if won.Load() != 1 || lost.Load() != 7 {
				t.Errorf("%d created it, %d were refused; want 1 and 7", won.Load(), lost.Load())
			}
		})
	}
}

// Whichever answer is lost, what was asked for is done once, and reported as done.
func TestALostAnswerIsFoundOut(t *testing.T) {
	keys(t, objecttest.Key)
	content := random(1000)
	for protocol, fake := range fakes {
		t.Run(protocol, func(t *testing.T) {
			for n := 0; ; n++ {
				server := fake(t)
				fsys := object.NewFS(t.Context(), open(t, server.Place("x")), quick)
				server.Fail(func(i int, _ *http.Request) objecttest.Fault { return objecttest.Fault{Lost: i == n} })
				if err := write(fsys, "run/segment", content); err != nil {
					t.Fatalf("the answer to request %d is lost: %v", n, err)
				}
				if err := fsys.Publish("run/manifest", content[:10]); err != nil {
					t.Fatalf("the answer to request %d is lost: %v", n, err)
				}
				got := server.Objects.Objects()
				if len(got) != 2 || !bytes.Equal(got["run/segment"], content) || !bytes.Equal(got["run/manifest"], content[:10]) {
					t.Fatalf("the answer to request %d is lost: the store holds %d objects", n, len(got))
				}
				if server.Requests() <= n {
					if n < 3 {
						t.Fatalf("%d requests: the test tests too little", n)
					}
					return
				}
			}
		})
	}
}

// ends reports whether a request ends an upload, in any protocol.
func ends(r *http.Request) bool {
	q := r.URL.Query()
	return r.Method == http.MethodPost && q.Has("uploadId") ||
		strings.HasSuffix(r.URL.Path, "/compose") && q.Has("ifGenerationMatch") ||
		r.Method == http.MethodPut && q.Get("comp") == "blocklist"
}

// If the answer to the end of an upload is lost, the upload is not taken for done, and the object
// is left alone.
func TestALostAnswerToTheEndOfAnUploadIsAnError(t *testing.T) {
	race.Skip(t)
	keys(t, objecttest.Key)
	for protocol, fake := range fakes {
		t.Run(protocol, func(t *testing.T) {
			server := fake(t)
			fsys := object.NewFS(t.Context(), open(t, server.Place("x")), quick)
			n := 0
			server.Fail(func(_ int, r *http.Request) objecttest.Fault {
				if ends(r) {
					n++
					return objecttest.Fault{Lost: n == 1}
				}
				return objecttest.Fault{}
			})
			if err := write(fsys, "large", make([]byte, object.PartBytes+1)); !errors.Is(err, fs.ErrExist) {
				t.Errorf("got %v; want fs.ErrExist: whose object it is nobody knows", err)
			}
			if got := server.Objects.Objects(); len(got) != 1 || len(got["large"]) != object.PartBytes+1 {
				t.Errorf("the store holds %d objects, and one with %d bytes", len(got), len(got["large"]))
			}
		})
	}
}

// If a writer dies after any request of an upload, the object is whole or is not there, and what else
// is left lies below tmp.
func TestAWriterThatDiesLeavesAWholeObjectOrNone(t *testing.T) {
	race.Skip(t)
	keys(t, objecttest.Key)
	content := random(object.PartBytes + 1)
	for protocol, fake := range fakes {
		if testing.Short() && protocol != "gs" {
			continue // where nobody sees a part
		}
		t.Run(protocol, func(t *testing.T) {
			whole := 0
			for n := 0; ; n++ {
				server := fake(t)
				server.Fail(func(i int, _ *http.Request) objecttest.Fault {
					if i >= n {
						return objecttest.Fault{Status: http.StatusForbidden, Code: "dead"} // which is not tried again
					}
					return objecttest.Fault{}
				})
				err := write(object.NewFS(t.Context(), open(t, server.Place("x")), quick), "x/segment/large", content)
				for name, got := range server.Objects.Objects() {
					if name == "x/segment/large" && bytes.Equal(got, content) {
						whole++
					} else if !strings.HasPrefix(name, "x/tmp/upload-") {
						t.Fatalf("after %d requests, %s has %d bytes", n, name, len(got))
					}
				}
				if server.Requests() <= n { // none has failed
					if err != nil || n < 4 || whole == 0 {
						t.Fatalf("%d requests, %d times a whole object, %v: the test tests too little", n, whole, err)
					}
					return
				}
			}
		})
	}
}

// If the last part of an upload is refused, nothing says so before all parts are waited for. The
// object must not be made of the others, which a store that is asked to does.
func TestAnUploadWithoutItsLastPartIsAnError(t *testing.T) {
	race.Skip(t)
	keys(t, objecttest.Key)
	content := random(object.PartBytes + 5000)
	for protocol, fake := range fakes {
		t.Run(protocol, func(t *testing.T) {
			server, uploads := fake(t), 0
			server.Fail(func(_ int, r *http.Request) objecttest.Fault {
				if strings.HasPrefix(r.URL.Path, "/upload/") { // gs, which says no length; any part will do
					uploads++
				}
				if uploads == 2 || r.ContentLength >= 5000 && r.ContentLength < object.PartBytes {
					return objecttest.Fault{Status: http.StatusForbidden, Code: "dead"} // which is not tried again
				}
				return objecttest.Fault{}
			})
			err := write(object.NewFS(t.Context(), open(t, server.Place("x")), quick), "x/segment/large", content)
			if !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v; want that the store refuses, in a line", err)
			}
			for name, got := range server.Objects.Objects() {
				if !strings.HasPrefix(name, "x/tmp/") {
					t.Errorf("%s has %d of %d bytes", name, len(got), len(content))
				}
			}
		})
	}
}

func TestAnotherWritersObjectIsNotTakenForOurs(t *testing.T) {
	keys(t, objecttest.Key)
	for protocol, fake := range fakes {
		t.Run(protocol, func(t *testing.T) {
			server := fake(t)
			fsys := object.NewFS(t.Context(), open(t, server.Place("x")), quick)
			server.Fail(func(i int, _ *http.Request) objecttest.Fault {
				if i == 0 { // the first try fails, and meanwhile another process creates it
					server.Objects.Put("run/manifest", []byte("theirs"))
					return objecttest.Fault{Status: http.StatusInternalServerError, Code: "InternalError"}
				}
				return objecttest.Fault{}
			})
			if err := fsys.Publish("run/manifest", []byte("ours..")); !errors.Is(err, fs.ErrExist) {
				t.Errorf("got %v; want fs.ErrExist", err)
			}
		})
	}
}

func TestWhatAStoreSaysIsTold(t *testing.T) {
	keys(t, objecttest.Key)
	impatient := object.Retries{Tries: 2, First: time.Microsecond, Timeout: 10 * time.Second, Rate: 1 << 30}
	type story struct {
		place string
		fault objecttest.Fault
		is    error
		says  string
	}
	everywhere := func(protocol, checks, slow string, server *objecttest.Server, own map[string]story) map[string]story {
		maps.Copy(own, map[string]story{
			"no such bucket": {place: server.Elsewhere("nobody"), says: "bucket nobody at 127.0.0.1"},
			"5xx":            {fault: objecttest.Fault{Status: 503, Code: slow}, is: object.ErrAway, says: "503 " + slow},
			"too many":       {fault: objecttest.Fault{Status: 429, Code: slow}, is: object.ErrAway, says: "429 " + slow},
			"no key":         {fault: objecttest.Fault{Status: 401, Code: "NoKey"}, is: fs.ErrPermission, says: "refuses (NoKey): check " + checks},
			"hangs":          {fault: objecttest.Fault{Hang: true}, is: object.ErrAway, says: "no answer within 30ms"},
			"is not there":   {place: protocol + "://runs/x?endpoint=http://127.0.0.1:1", is: object.ErrAway, says: "connection refused"},
		})
		return own
	}
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AZURE_STORAGE_ACCOUNT", objecttest.Account)
	s3, gs, az := objecttest.New(t), objecttest.NewGoogle(t), objecttest.NewAzure(t)
	for protocol, c := range map[string]struct {
		server  *objecttest.Server
		stories map[string]story
	}{
		"s3": {s3, everywhere("s3", "AWS_ACCESS_KEY_ID", "SlowDown", s3, map[string]story{
			"wrong keys":    {fault: objecttest.Fault{Status: 403, Code: "SignatureDoesNotMatch"}, is: fs.ErrPermission, says: "check AWS_ACCESS_KEY_ID"},
			"nobody's keys": {fault: objecttest.Fault{Status: 404, Code: "XAdminUserNotFound"}, is: fs.ErrPermission, says: "check AWS_ACCESS_KEY_ID"},
			"full":          {fault: objecttest.Fault{Status: 507, Code: "XMinioStorageFull"}, is: syscall.ENOSPC, says: "is full"},
		})},
		"gs": {gs, everywhere("gs", "GOOGLE_APPLICATION_CREDENTIALS", "backendError", gs, map[string]story{
			"no right":    {fault: objecttest.Fault{Status: 403, Code: "forbidden"}, is: fs.ErrPermission, says: "refuses (forbidden)"},
			"in a minute": {fault: objecttest.Fault{Status: 403, Code: "rateLimitExceeded"}, is: object.ErrAway, says: "rateLimitExceeded"},
		})},
		"az": {az, everywhere("az", "AZURE_STORAGE_KEY", "ServerBusy", az, map[string]story{
			"no right": {fault: objecttest.Fault{Status: 403, Code: "AuthorizationPermissionMismatch"}, is: fs.ErrPermission, says: "refuses (AuthorizationPermissionMismatch)"},
		})},
	} {
		for what, story := range c.stories {
			t.Run(protocol+" "+what, func(t *testing.T) {
				c.server.Fail(func(int, *http.Request) objecttest.Fault { return story.fault })
				retries := impatient
				if story.fault.Hang {
					retries.Timeout = 30 * time.Millisecond
				}
				fsys := object.NewFS(t.Context(), open(t, cmp.Or(story.place, c.server.Place("x"))), retries)
				_, err := fsys.List("run")
				if err == nil || story.is != nil && !errors.Is(err, story.is) || !strings.Contains(err.Error(), story.says) {
					t.Errorf("list: %v; want %v, with %q in it", err, story.is, story.says)
				}
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) {
					t.Errorf("list: %v would be taken for damage", err)
				}
				if err := write(fsys, "run/x", []byte("x")); err == nil || !strings.Contains(err.Error(), "run/x") || strings.Contains(err.Error(), objecttest.Secret) {
					t.Errorf("write: %v", err)
				}
			})
		}
	}
}

// A signature stands in the address of each request. Whoever reads a log must not find it there.
func TestASignatureIsNotTold(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2026&sig=hidden")
	fsys := object.NewFS(t.Context(), open(t, "az://runs/x?account=a&endpoint=https://127.0.0.1:1"), quick)
	_, listed := fsys.List("run")
	_, opened := fsys.Open("run/x")
	for _, err := range []error{listed, opened, fsys.Publish("run/x", nil), fsys.Rename("run/x", "run/y"), fsys.Remove("run/x"), write(fsys, "run/z", make([]byte, object.PartBytes+1))} {
		if err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("it says %v", err)
		}
	}
}

// Requests that fail now and then are repeated, also in the middle of an upload.
func TestAStoreThatFailsNowAndThenIsGoodEnough(t *testing.T) {
	race.Skip(t)
	keys(t, objecttest.Key)
	for protocol, fake := range fakes {
		t.Run(protocol, func(t *testing.T) {
			server := fake(t)
			server.Fail(func(n int, _ *http.Request) objecttest.Fault {
				if n%2 == 0 {
					return objecttest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}
				}
				return objecttest.Fault{}
			})
			fsys := object.NewFS(t.Context(), open(t, server.Place("x")), quick)
			want := random(object.PartBytes + 5)
			if err := write(fsys, "large", want); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(server.Objects.Objects()["large"], want) {
				t.Error("the store holds other bytes")
			}
		})
	}
}

// replacing is a store that ignores the condition of a write.
type replacing struct{ *object.Mem }

func (r replacing) Create(_ context.Context, name string, content []byte) error {
	r.Put(name, content)
	return nil
}

func TestProbeFindsAStoreThatReplaces(t *testing.T) {
	mem := &object.Mem{}
	if err := object.NewFS(t.Context(), replacing{mem}, quick).Probe("run"); err == nil || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("got %v", err)
	}
	if len(mem.Objects()) > 0 {
		t.Error("the probe is left over")
	}
}

func TestAFileSystemEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the server stops")
	cancel(stop)
	keys(t, objecttest.Key)
	for protocol, fake := range fakes {
		fsys := object.NewFS(ctx, open(t, fake(t).Place("x")), object.DefaultRetries())
		if _, err := fsys.List("run"); !errors.Is(err, stop) {
			t.Errorf("%s: got %v", protocol, err)
		}
	}
}

// nothing is an environment without variables.
func nothing(string) string { return "" }

func TestPlaces(t *testing.T) {
	for s, want := range map[string]object.Place{
		"s3://b":       {Scheme: "s3://", Bucket: "b", Endpoint: "s3.amazonaws.com"},
		"s3://b/x//y/": {Scheme: "s3://", Bucket: "b", Prefix: "x/y", Endpoint: "s3.amazonaws.com"},
		"s3://b/x?endpoint=http://h:1&region=eu-1": {Scheme: "s3://", Bucket: "b", Prefix: "x", Endpoint: "h:1", Plain: true, Region: "eu-1"},
		"gs://b/x?patience=5s":                     {Scheme: "gs://", Bucket: "b", Prefix: "x", Endpoint: "storage.googleapis.com", Patience: 5 * time.Second},
		"gs://b?endpoint=http://h:1/":              {Scheme: "gs://", Bucket: "b", Endpoint: "h:1", Plain: true},
		"az://c/x?account=a1":                      {Scheme: "az://", Bucket: "c", Prefix: "x", Endpoint: "a1.blob.core.windows.net", Account: "a1"},
		"az://c?account=a&endpoint=http://h:1/a/":  {Scheme: "az://", Bucket: "c", Endpoint: "h:1/a", Plain: true, Account: "a"},
	} {
		if got, err := object.ParsePlace(s, nothing); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "run", "ftp://b/x", "s3://", "s3:///x", "s3://key:hidden@b/x", "s3://b/x?secret=hidden", "s3://b?endpoint=h:1",
		"s3://b?endpoint=http://k:hidden@h", "s3://b/x#y", "s3://b/x?%zz", "s3://b?account=a", "s3://b?endpoint=http://h/x",
		"s3://b?endpoint=https://storage.googleapis.com", "gs://", "gs://b?region=eu-1", "gs://key:hidden@b", "gs://b?endpoint=http://h/x",
		"az://c", "az://c?account=a.evil.example/", "az://?account=a", "az://c?account=a&endpoint=http://h?sig=hidden", "az://c?account=a&sig=hidden",
	} {
		if _, err := object.ParsePlace(s, nothing); !errors.Is(err, kintsugi.ErrUsage) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v; want a usage error without what may be secret", s, err)
		}
	}
	environment := func(name string) string {
		return map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AZURE_STORAGE_ACCOUNT": "mine"}[name]
	}
	for s, want := range map[string]string{"s3://b": "127.0.0.1:9", "gs://b": "storage.googleapis.com", "az://b": "mine.blob.core.windows.net"} {
		if got, err := object.ParsePlace(s, environment); err != nil || got.Endpoint != want || got.Plain != (s == "s3://b") {
			t.Errorf("%s is %+v, %v; want it at %s", s, got, err, want)
		}
	}
}

// Large objects of Google's are joined from at most 32 parts at a time.
func TestAnObjectMayHaveMoreThan32Parts(t *testing.T) {
	race.Skip(t)
	for _, parts := range []int{32, 33, 1025} {
		server := objecttest.NewGoogle(t)
		up, err := open(t, server.Place("x")).Upload(t.Context(), "large")
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for number := 1; number <= parts; number++ {
			content := fmt.Appendf(nil, "part %d\n", number)
			want = append(want, content...)
			if err := up.Part(t.Context(), number, content); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		server.Fail(func(_ int, r *http.Request) objecttest.Fault { // every third joining fails
			if !strings.HasSuffix(r.URL.Path, "/compose") {
				return objecttest.Fault{}
			}
			if n++; n%3 == 0 {
				return objecttest.Fault{Status: 503, Code: "backendError"}
			}
			return objecttest.Fault{}
		})
		for err = up.Complete(t.Context()); errors.Is(err, object.ErrAway); {
			err = up.Complete(t.Context())
		}
		if got := server.Objects.Objects(); err != nil || len(got) != 1 || !bytes.Equal(got["large"], want) {
			t.Errorf("%d parts: %v; the store holds %d objects, and %d bytes of %d", parts, err, len(got), len(got["large"]), len(want))
		}
	}
}

// A keeper has room for a number of bytes, whoever sends them, and refuses before it takes more.
func TestAKeeperThatIsFullRefusesAndKeepsWhatItHas(t *testing.T) {
	k := object.NewKeeper(1000)
	m := object.OpenMemory(keep(t, k), nil)
	ctx := t.Context()
	if err := m.Create(ctx, "a", random(600)); err != nil {
		t.Fatal(err)
	}
	up, err := m.Upload(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Part(ctx, 1, random(300)); err != nil {
		t.Fatal(err)
	}
	if err := m.Create(ctx, "b", random(101)); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, object.ErrAway) {
		t.Errorf("101 bytes where 100 are left: %v", err)
	}
	if err := up.Part(ctx, 2, random(101)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a part of 101 bytes where 100 are left: %v", err)
	}
	if used, n := k.Used(); used != 900 || n != 1 {
		t.Errorf("%d bytes of %d objects are used, want 900 of 1", used, n)
	}
	if err := errors.Join(up.Abort(ctx), m.Create(ctx, "b", random(400))); err != nil {
		t.Error(err)
	}
	if err := up.Complete(ctx); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an upload that was aborted: %v", err)
	}
	got := make([]byte, 600)
	if err := m.Read(ctx, "a", got, 0); err != nil || !bytes.Equal(got, random(600)) {
		t.Errorf("the first object has changed: %v", err)
	}
}

// A keeper that is gone may come back, so its error says that another try may help.
func TestAKeeperThatIsGoneIsAway(t *testing.T) {
	s := httptest.NewServer(object.NewKeeper(1000))
	m := object.OpenMemory(s.Listener.Addr().String(), nil)
	s.Close()
	if _, err := m.Stat(t.Context(), "a"); !errors.Is(err, object.ErrAway) {
		t.Errorf("got %v, want %v", err, object.ErrAway)
	}
}
