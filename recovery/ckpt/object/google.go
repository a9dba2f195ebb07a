package object

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/kintsugi-ml/kintsugi"
)

// googleStore is a bucket of Google Cloud Storage, by its JSON interface. Its S3 interface will not
// do: a write there replaces what exists, whatever If-None-Match says.
type googleStore struct {
	objects *storage.ObjectsService
	place   Place
}

var _ Store = (*googleStore)(nil)

// openGoogle returns the bucket of a place. Keys are the application default credentials. Over plain
// HTTP, as an emulator speaks it, no keys are sent, since anybody on the way could take them.
func openGoogle(ctx context.Context, p Place) (*googleStore, error) {
	scheme, auth := "https://", option.WithScopes(storage.DevstorageReadWriteScope)
	if p.Plain {
		scheme, auth = "http://", option.WithoutAuthentication()
	}
	s, err := storage.NewService(ctx, auth, option.WithEndpoint(scheme+p.Endpoint+"/storage/v1/"),
		option.WithUserAgent("kintsugi/1"), option.WithTelemetryDisabled())
	if err != nil {
		return nil, fmt.Errorf("%w: %s: check %s: %w", kintsugi.ErrUsage, p.where(), p.keys(), err)
	}
	return &googleStore{objects: s.Objects, place: p}, nil
}

// create creates an object, under the condition that there is none or under no condition.
func (s *googleStore) create(ctx context.Context, name string, content []byte, absent bool) error {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
	// The store compares the checksum before the object exists.
	call := s.objects.Insert(s.place.Bucket, &storage.Object{Name: name, Crc32c: base64.StdEncoding.EncodeToString(sum[:])})
	if absent {
		call = call.IfGenerationMatch(0)
	}
	made, err := call.Media(bytes.NewReader(content), googleapi.ChunkSize(0), googleapi.ContentType("application/octet-stream")).
		Fields("name", "size").Context(ctx).Do()
	if err == nil && (made.Name != name || made.Size != uint64(len(content))) {
		return s.place.impostor()
	}
	return s.bucket(s.explain(err))
}

// bucket converts what says that something does not exist, where only the bucket can be meant.
func (s *googleStore) bucket(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return s.place.noBucket()
	}
	return err
}

// Create implements Store.
func (s *googleStore) Create(ctx context.Context, name string, content []byte) error {
	return s.create(ctx, name, content, true)
}

// Upload implements Store. The parts are objects below tmp, which Complete joins: what the store
// offers for parts that nobody sees has no condition at its end, or takes them one after the other.
func (s *googleStore) Upload(_ context.Context, name string) (Upload, error) {
	return &googleUpload{s: s, name: name, parts: path.Join(s.place.Prefix, "tmp", "upload-"+rand.Text()), sent: map[int]string{}, made: map[string]bool{}}, nil
}

type googleUpload struct {
	s     *googleStore
	name  string
	parts string // what the names of all parts begin with

	mu   sync.Mutex
	sent map[int]string  // the names of parts by their numbers; guarded by mu
	made map[string]bool // the names of objects that were joined from parts; guarded by mu
}

// Part implements Upload.
func (u *googleUpload) Part(ctx context.Context, number int, content []byte) error {
	name := fmt.Sprintf("%s-%05d", u.parts, number)
	u.mu.Lock()
	u.sent[number] = name
	u.mu.Unlock()
	return u.s.create(ctx, name, content, false)
}

// googleMost is how many objects Google Cloud Storage joins in one request.
const googleMost = 32

// googleAtOnce bounds the requests without content that are on their way for one upload. A guess.
const googleAtOnce = 16

// Complete implements Upload. It joins 32 parts to one, 32 of these to one, and so on; the last time
// under the condition that there is no such object.
func (u *googleUpload) Complete(ctx context.Context) error {
	u.mu.Lock()
	names := make([]string, 0, len(u.sent))
	for _, number := range slices.Sorted(maps.Keys(u.sent)) {
		names = append(names, u.sent[number])
	}
	u.mu.Unlock()
	for level := 1; len(names) > googleMost; level++ {
		var err error
		if names, err = u.shorten(ctx, names, level); err != nil {
			return err
		}
	}
	err := u.s.join(ctx, names, u.name, true)
	if errors.Is(err, fs.ErrNotExist) {
		// An earlier try, whose answer was lost, has removed the parts.
		err = fmt.Errorf("%w: the upload is over already, and whether the object is this one is unknown", fs.ErrExist)
	}
	if err == nil {
		_ = u.Abort(ctx) // parts that stay cost storage, and nothing else
	}
	return err
}

// shorten joins each 32 objects to one, but for those that an earlier try has joined.
func (u *googleUpload) shorten(ctx context.Context, names []string, level int) (joined []string, err error) {
	var group errgroup.Group // which goes on after an error, so that another try has less to do
	group.SetLimit(googleAtOnce)
	for these := range slices.Chunk(names, googleMost) {
		name := fmt.Sprintf("%s-%05d-%d", u.parts, len(joined)+1, level)
		joined = append(joined, name)
		u.mu.Lock()
		done := u.made[name]
		u.mu.Unlock()
		if done {
			continue
		}
		group.Go(func() error {
			err := u.s.join(ctx, these, name, false)
			if err == nil {
				u.mu.Lock()
				u.made[name] = true
				u.mu.Unlock()
			}
			return err
		})
	}
	return joined, group.Wait()
}

// join makes an object of the contents of others, which it leaves as they are.
func (s *googleStore) join(ctx context.Context, from []string, to string, absent bool) error {
	r := &storage.ComposeRequest{Destination: &storage.Object{ContentType: "application/octet-stream"}}
	for _, name := range from {
		r.SourceObjects = append(r.SourceObjects, &storage.ComposeRequestSourceObjects{Name: name})
	}
	call := s.objects.Compose(s.place.Bucket, to, r)
	if absent {
		call = call.IfGenerationMatch(0)
	}
	made, err := call.Fields("name").Context(ctx).Do()
	if err == nil && made.Name != to {
		return s.place.impostor()
	}
	return s.explain(err)
}

// Abort implements Upload. It removes the parts, as far as it can.
func (u *googleUpload) Abort(ctx context.Context) error {
	u.mu.Lock()
	names := slices.AppendSeq(slices.Collect(maps.Values(u.sent)), maps.Keys(u.made))
	u.mu.Unlock()
	var group errgroup.Group // which goes on after an error
	group.SetLimit(googleAtOnce)
	for _, name := range names {
		group.Go(func() error { return u.s.Remove(ctx, name) })
	}
	return group.Wait()
}

// Read implements Store.
func (s *googleStore) Read(ctx context.Context, name string, p []byte, offset int64) error {
	call := s.objects.Get(s.place.Bucket, name).Context(ctx)
	call.Header().Set("Range", span(offset, len(p)))
	r, err := call.Download()
	if err != nil {
		return s.explain(err)
	}
	defer r.Body.Close() // opened for reading only: nothing can be lost
	return fill(s.place.where(), name, p, r.Body, offset, r.Header.Get("Content-Range"))
}

// Begin implements Store.
func (s *googleStore) Begin(ctx context.Context, name string, p []byte) (int64, error) {
	call := s.objects.Get(s.place.Bucket, name).Context(ctx)
	call.Header().Set("Range", span(0, len(p)))
	r, err := call.Download()
	if e, ok := errors.AsType[*googleapi.Error](err); ok && (e.Code == http.StatusRequestedRangeNotSatisfiable || e.Code == http.StatusNotFound) {
		return unread(ctx, s, name) // a refusal to send content is a text for people
	}
	if err != nil {
		return 0, s.explain(err)
	}
	defer r.Body.Close() // opened for reading only: nothing can be lost
	if cmp.Or(r.Header.Get("X-Goog-Generation"), r.Header.Get("X-Goog-Hash"), r.Header.Get("X-Guploader-Uploadid")) == "" {
		return 0, s.place.impostor()
	}
	return begin(s.place.where(), name, p, r.Body, r.ContentLength, r.Header.Get("Content-Range"))
}

// Stat implements Store.
func (s *googleStore) Stat(ctx context.Context, name string) (int64, error) {
	o, err := s.objects.Get(s.place.Bucket, name).Fields("name", "size").Context(ctx).Do()
	if err != nil {
		return 0, s.explain(err)
	}
	if o.Name != name {
		return 0, s.place.impostor()
	}
	return int64(o.Size), nil
}

// List implements Store.
func (s *googleStore) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	call := s.objects.List(s.place.Bucket).Prefix(prefix).Delimiter("/").Fields("kind", "nextPageToken", "prefixes", "items/name")
	err := call.Pages(ctx, func(page *storage.Objects) error {
		if page.Kind != "storage#objects" {
			return s.place.impostor()
		}
		for _, o := range page.Items {
			if o == nil {
				return s.place.impostor()
			}
			if name := strings.TrimPrefix(o.Name, prefix); name != "" {
				names = append(names, name)
			}
		}
		for _, folder := range page.Prefixes {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(folder, prefix), "/"))
		}
		return nil
	})
	return names, s.bucket(s.explain(err))
}

// Copy implements Store.
func (s *googleStore) Copy(ctx context.Context, from, to string) error {
	for token := ""; ; {
		// A large object that is copied to another class or region takes several requests.
		call := s.objects.Rewrite(s.place.Bucket, from, s.place.Bucket, to, nil).Context(ctx)
		if token != "" {
			call = call.RewriteToken(token)
		}
		r, err := call.Do()
		if err != nil {
			return s.explain(err)
		}
		if r.Done {
			return nil
		}
		if token = r.RewriteToken; token == "" {
			return s.place.impostor()
		}
	}
}

// Remove implements Store.
func (s *googleStore) Remove(ctx context.Context, name string) error {
	err := s.explain(s.objects.Delete(s.place.Bucket, name).Context(ctx).Do())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// explain converts an error of the client.
func (s *googleStore) explain(err error) error {
	if err == nil || errors.Is(err, ErrAway) {
		return err
	}
	if e, ok := errors.AsType[*googleapi.Error](err); ok {
		return s.answered(e)
	}
	// The client asks for a token before it asks the store.
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil && e.Response.StatusCode/100 == 4 {
		return s.place.refuses(cmp.Or(e.ErrorCode, e.Response.Status))
	}
	return s.place.silent(err)
}

// answered converts what the store has said.
func (s *googleStore) answered(e *googleapi.Error) error {
	a := answer{status: e.Code, message: e.Message}
	if len(e.Errors) > 0 {
		a.code = e.Errors[0].Reason
	}
	switch {
	case e.Code == http.StatusNotFound && strings.Contains(e.Message, "bucket does not exist"):
		return s.place.noBucket()
	case e.Code == http.StatusNotFound && (a.code != "" || strings.HasPrefix(e.Body, "No such object")): // the latter where content was asked for
		return fs.ErrNotExist
	case strings.HasSuffix(strings.ToLower(a.code), "ratelimitexceeded"): // 403 or 429
		a.status = http.StatusTooManyRequests
	}
	return a.err(s.place)
}
