package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
}

func openS3(t *testing.T, place string) object.Store {
	t.Helper()
	p, err := object.ParsePlace(place, object.AWS)
	if err != nil {
		t.Fatal(err)
	}
	s, err := object.OpenS3(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stores lists the stores on which FS must behave the same. The last one skips if there is no real
// server.
func stores(t *testing.T) map[string]func(*testing.T) object.Store {
	keys(t, objecttest.Key)
	return map[string]func(*testing.T) object.Store{
		"memory": func(*testing.T) object.Store { return &object.Mem{} },
		"keeper": func(t *testing.T) object.Store { return object.OpenMemory(keep(t, object.NewKeeper(1<<30)), nil) },
		"fake":   func(t *testing.T) object.Store { return openS3(t, objecttest.New(t).Place("x")) },
		"real":   func(t *testing.T) object.Store { return openS3(t, objecttest.Real(t, os.Getenv("KINTSUGI_S3"))("x")) },
	}
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
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
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
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
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

func TestReadsAnywhereAreThoseOfTheBytes(t *testing.T) {
	fsys := object.NewFS(t.Context(), &object.Mem{}, quick)
	want := random(100_000)
	if err := write(fsys, "x", want); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open("x")
	if err != nil {
		t.Fatal(err)
	}
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

func TestOfManyWhoCreateOneNameOneDoes(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
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
	for n := 0; ; n++ {
		server := objecttest.New(t)
		fsys := object.NewFS(t.Context(), openS3(t, server.Place("x")), quick)
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
}

// If the answer to the end of an upload is lost, the upload is not taken for done, and the object
// is left alone.
func TestALostAnswerToTheEndOfAnUploadIsAnError(t *testing.T) {
	keys(t, objecttest.Key)
	server := objecttest.New(t)
	fsys := object.NewFS(t.Context(), openS3(t, server.Place("x")), quick)
	ends := 0
	server.Fail(func(_ int, r *http.Request) objecttest.Fault {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			ends++
		}
		return objecttest.Fault{Lost: ends == 1}
	})
	if err := write(fsys, "large", make([]byte, object.PartBytes+1)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v; want fs.ErrExist: whose object it is nobody knows", err)
	}
}

func TestAnotherWritersObjectIsNotTakenForOurs(t *testing.T) {
	keys(t, objecttest.Key)
	server := objecttest.New(t)
	fsys := object.NewFS(t.Context(), openS3(t, server.Place("x")), quick)
	server.Fail(func(i int, r *http.Request) objecttest.Fault {
		if r.Method == http.MethodPut && i == 0 { // the first try fails, and meanwhile another process creates it
			server.Objects.Put("run/manifest", []byte("theirs"))
			return objecttest.Fault{Status: http.StatusInternalServerError, Code: "InternalError"}
		}
		return objecttest.Fault{}
	})
	if err := fsys.Publish("run/manifest", []byte("ours..")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v; want fs.ErrExist", err)
	}
}

func TestWhatAStoreSaysIsTold(t *testing.T) {
	keys(t, objecttest.Key)
	server := objecttest.New(t)
	impatient := object.Retries{Tries: 2, First: time.Microsecond, Timeout: 10 * time.Second, Rate: 1 << 30}
	for what, c := range map[string]struct {
		place string
		fault objecttest.Fault
		is    error
		says  string
	}{
		"no such bucket": {place: strings.Replace(server.Place("x"), objecttest.Bucket, "nobody", 1), says: "bucket nobody at 127.0.0.1"},
		"wrong keys":     {fault: objecttest.Fault{Status: 403, Code: "SignatureDoesNotMatch"}, is: fs.ErrPermission, says: "check AWS_ACCESS_KEY_ID"},
		"nobody's keys":  {fault: objecttest.Fault{Status: 404, Code: "XAdminUserNotFound"}, is: fs.ErrPermission, says: "check AWS_ACCESS_KEY_ID"},
		"full":           {fault: objecttest.Fault{Status: 507, Code: "XMinioStorageFull"}, is: syscall.ENOSPC, says: "is full"},
		"5xx":            {fault: objecttest.Fault{Status: 503, Code: "SlowDown"}, is: object.ErrAway, says: "503 SlowDown"},
		"hangs":          {fault: objecttest.Fault{Hang: true}, is: object.ErrAway, says: "no answer within 30ms"},
		"is not there":   {place: "s3://runs/x?region=us-east-1&endpoint=http://127.0.0.1:1", is: object.ErrAway, says: "connection refused"},
	} {
		t.Run(what, func(t *testing.T) {
			server.Fail(func(int, *http.Request) objecttest.Fault { return c.fault })
			if c.place == "" {
				c.place = server.Place("x")
			}
			retries := impatient
			if c.fault.Hang {
				retries.Timeout = 30 * time.Millisecond
			}
			fsys := object.NewFS(t.Context(), openS3(t, c.place), retries)
			_, err := fsys.List("run")
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("list: %v; want %v, with %q in it", err, c.is, c.says)
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

// Requests that fail now and then are repeated, also in the middle of an upload.
func TestAStoreThatFailsNowAndThenIsGoodEnough(t *testing.T) {
	keys(t, objecttest.Key)
	server := objecttest.New(t)
	server.Fail(func(n int, _ *http.Request) objecttest.Fault {
		if n%2 == 0 {
			return objecttest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}
		}
		return objecttest.Fault{}
	})
	fsys := object.NewFS(t.Context(), openS3(t, server.Place("x")), quick)
	want := random(object.PartBytes + 5)
	if err := write(fsys, "large", want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(server.Objects.Objects()["large"], want) {
		t.Error("the store holds other bytes")
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
	server := objecttest.New(t)
	keys(t, objecttest.Key)
	fsys := object.NewFS(ctx, openS3(t, server.Place("x")), object.DefaultRetries())
	if _, err := fsys.List("run"); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestPlaces(t *testing.T) {
	for s, want := range map[string]object.Place{
		"s3://b":       {Bucket: "b", Endpoint: "s3.amazonaws.com"},
		"s3://b/x//y/": {Bucket: "b", Prefix: "x/y", Endpoint: "s3.amazonaws.com"},
		"s3://b/x?endpoint=http://h:1&region=eu-1": {Bucket: "b", Prefix: "x", Endpoint: "h:1", Plain: true, Region: "eu-1"},
	} {
		if got, err := object.ParsePlace(s, object.AWS); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "run", "gs://b/x", "s3://", "s3:///x", "s3://key:hidden@b/x", "s3://b/x?secret=hidden", "s3://b?endpoint=h:1", "s3://b?endpoint=http://k:hidden@h", "s3://b/x#y", "s3://b/x?%zz"} {
		if _, err := object.ParsePlace(s, object.AWS); !errors.Is(err, kintsugi.ErrUsage) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v; want a usage error without what may be secret", s, err)
		}
	}
	if got, err := object.ParsePlace("s3://b", "http://127.0.0.1:9"); err != nil || got.Endpoint != "127.0.0.1:9" || !got.Plain {
		t.Errorf("%+v, %v; want the given endpoint", got, err)
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
