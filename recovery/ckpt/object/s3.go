package object

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/kintsugi-ml/kintsugi"
)

// s3Store is a bucket of a store that speaks the protocol of Amazon's S3.
type s3Store struct {
	client *minio.Core
	place  Place
}

var _ Store = (*s3Store)(nil)

// openS3 returns the bucket of a place, without sending anything yet. Keys come from the
// environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; MINIO_ROOT_USER and
// MINIO_ROOT_PASSWORD), the file ~/.aws/credentials ($AWS_PROFILE), or the role of the machine.
func openS3(p Place) (*s3Store, error) {
	transport, err := minio.DefaultTransport(!p.Plain)
	if err != nil {
		return nil, fmt.Errorf("%w: object store %s: %w", kintsugi.ErrUsage, p.Endpoint, err)
	}
	client, err := minio.NewCore(p.Endpoint, &minio.Options{
		Transport: lists{transport, p},
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: !p.Plain, Region: p.Region,
		MaxRetries: 1, // FS repeats requests: it knows what must be compared afterwards
	})
	if err != nil {
		return nil, fmt.Errorf("%w: object store %s: %w", kintsugi.ErrUsage, p.Endpoint, err)
	}
	client.SetAppInfo("kintsugi", "1")
	return &s3Store{client: client, place: p}, nil
}

// lists passes requests on, and no answers to requests for lists that are none. The client takes a
// page to sign in to a network for the list of an empty bucket: there would be no checkpoints.
type lists struct {
	http.RoundTripper
	place Place
}

// RoundTrip implements http.RoundTripper.
func (l lists) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || !r.URL.Query().Has("list-type") {
		return answer, err
	}
	body := bufio.NewReader(answer.Body)
	begin, err := body.Peek(1024) // as far as it reaches
	if !bytes.Contains(begin, []byte("ListBucketResult")) && !bytes.Contains(begin, []byte("<Error")) {
		_ = answer.Body.Close() // nothing in it is wanted
		if err != nil && err != io.EOF {
			return nil, err
		}
		return nil, l.place.impostor()
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{body, answer.Body}
	return answer, nil
}

// absent returns the condition of a write that must not replace anything.
func absent() (o minio.PutObjectOptions) {
	o.SetMatchETagExcept("*")
	return o
}

// Create implements Store.
func (s *s3Store) Create(ctx context.Context, name string, content []byte) error {
	made, err := s.client.PutObject(ctx, s.place.Bucket, name, bytes.NewReader(content), int64(len(content)), "", "", absent())
	// Every store gives an ETag for an object that it has, so something else has answered.
	if err == nil && made.ETag == "" {
		return s.place.impostor()
	}
	return s.explain(err)
}

// Upload implements Store.
func (s *s3Store) Upload(ctx context.Context, name string) (Upload, error) {
	id, err := s.client.NewMultipartUpload(ctx, s.place.Bucket, name, minio.PutObjectOptions{})
	if err != nil {
		return nil, s.explain(err)
	}
	return &s3Upload{s: s, name: name, id: id}, nil
}

type s3Upload struct {
	s        *s3Store
	name, id string

	mu    sync.Mutex
	parts []minio.CompletePart // guarded by mu
}

// Part implements Upload.
func (u *s3Upload) Part(ctx context.Context, number int, content []byte) error {
	p, err := u.s.client.PutObjectPart(ctx, u.s.place.Bucket, u.name, u.id, number, bytes.NewReader(content), int64(len(content)), minio.PutObjectPartOptions{})
	if err != nil {
		return u.s.explain(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: p.ETag})
	return nil
}

// Complete implements Upload.
func (u *s3Upload) Complete(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.SortFunc(u.parts, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	_, err := u.s.client.CompleteMultipartUpload(ctx, u.s.place.Bucket, u.name, u.id, u.parts, absent())
	if minio.ToErrorResponse(err).Code == "NoSuchUpload" {
		// An earlier try, whose answer was lost, has completed it, or another client has aborted
		// it.
		return fmt.Errorf("%w: the upload is over already, and whether the object is this one is unknown", fs.ErrExist)
	}
	return u.s.explain(err)
}

// Abort implements Upload.
func (u *s3Upload) Abort(ctx context.Context) error {
	return u.s.explain(u.s.client.AbortMultipartUpload(ctx, u.s.place.Bucket, u.name, u.id))
}

// Read implements Store.
func (s *s3Store) Read(ctx context.Context, name string, p []byte, offset int64) error {
	var o minio.GetObjectOptions
	o.Set("Range", span(offset, len(p)))
	body, _, header, err := s.client.GetObject(ctx, s.place.Bucket, name, o)
	if err != nil {
		return s.explain(err)
	}
	defer body.Close() // opened for reading only: nothing can be lost
	return fill(s.place.where(), name, p, body, offset, header.Get("Content-Range"))
}

// Begin implements Store.
func (s *s3Store) Begin(ctx context.Context, name string, p []byte) (int64, error) {
	var o minio.GetObjectOptions
	o.Set("Range", span(0, len(p)))
	body, about, header, err := s.client.GetObject(ctx, s.place.Bucket, name, o)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return unread(ctx, s, name)
	}
	if err != nil {
		return 0, s.explain(err)
	}
	defer body.Close() // opened for reading only: nothing can be lost
	if about.ETag == "" {
		return 0, s.place.impostor()
	}
	length, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil {
		length = -1
	}
	return begin(s.place.where(), name, p, body, length, header.Get("Content-Range"))
}

// Stat implements Store.
func (s *s3Store) Stat(ctx context.Context, name string) (int64, error) {
	info, err := s.client.StatObject(ctx, s.place.Bucket, name, minio.StatObjectOptions{})
	if err == nil && info.Size < 0 {
		return 0, lengthless(s.place.where(), name)
	}
	return info.Size, s.explain(err)
}

// List implements Store.
func (s *s3Store) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for o := range s.client.ListObjectsIter(ctx, s.place.Bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, s.explain(o.Err)
		}
		if name := strings.TrimSuffix(strings.TrimPrefix(o.Key, prefix), "/"); name != "" {
			names = append(names, name)
		}
	}
	// The iterator ends silently when its context does. Half a list must not be taken for the whole
	// list.
	return names, context.Cause(ctx)
}

// Copy implements Store.
func (s *s3Store) Copy(ctx context.Context, from, to string) error {
	size, err := s.Stat(ctx, from)
	if err != nil {
		return err
	}
	dst := minio.CopyDestOptions{Bucket: s.place.Bucket, Object: to}
	src := minio.CopySrcOptions{Bucket: s.place.Bucket, Object: from}
	const most = 5 << 30 // that one request may copy
	if size > most {
		_, err = s.client.ComposeObject(ctx, dst, src)
	} else {
		_, err = s.client.Client.CopyObject(ctx, dst, src)
	}
	return s.explain(err)
}

// Remove implements Store.
func (s *s3Store) Remove(ctx context.Context, name string) error {
	err := s.explain(s.client.RemoveObject(ctx, s.place.Bucket, name, minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// explain converts an answer of the store to an error that says what to do, and that FS can act on.
func (s *s3Store) explain(err error) error {
	if err == nil {
		return nil
	}
	r, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok && errors.Is(err, ErrAway) {
		return s.place.impostor() // as lists says
	}
	if !ok {
		return s.place.silent(err)
	}
	switch {
	case r.Code == "PreconditionFailed":
		return fs.ErrExist
	case r.Code == "NoSuchKey" || r.Code == "NotFound":
		return fs.ErrNotExist
	case r.Code == "NoSuchBucket":
		return s.place.noBucket()
	case r.Code == "RequestTimeTooSkewed":
		return fmt.Errorf("%s refuses (%s): the clock of this machine is wrong, set it: %w", s.place.where(), r.Code, fs.ErrPermission)
	case strings.HasSuffix(r.Code, "UserNotFound"): // versitygw: 404 XAdminUserNotFound
		return s.place.refuses(r.Code)
	}
	return answer{status: r.StatusCode, code: r.Code, message: r.Message}.err(s.place)
}
