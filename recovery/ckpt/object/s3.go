package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/kintsugi-ml/kintsugi"
)

// Place says in which object store a checkpoint lies, and where.
type Place struct {
	Bucket   string
	Prefix   string // of all names, without leading or trailing slashes; may be empty
	Endpoint string // host and port
	Plain    bool   // HTTP without TLS
	Region   string // empty: the store is asked

	// Patience is how long a request may take before it is given up; 0: as DefaultRetries says.
	Patience time.Duration
}

// Scheme is the beginning of the name of a place in an object store.
const Scheme = "s3://"

// AWS is the endpoint of Amazon.
const AWS = "https://s3.amazonaws.com"

// ParsePlace reads s3://bucket/prefix?endpoint=URL&region=NAME&patience=DURATION. If the text has
// no endpoint, the parameter endpoint is used. The error is kintsugi.ErrUsage; it never repeats
// what may be a password.
func ParsePlace(s, endpoint string) (Place, error) {
	usage := func(format string, args ...any) (Place, error) {
		return Place{}, fmt.Errorf("%w: a store is a folder, memory://host:port/prefix or s3://bucket/prefix?endpoint=https://host:port&region=name&patience=20s; %s", kintsugi.ErrUsage, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "s3" {
		return usage("this is none of them")
	}
	if u.User != nil {
		return usage("keys do not belong into it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if u.Host == "" {
		return usage("this names no bucket")
	}
	p := Place{Bucket: u.Host, Prefix: clean(u.Path)}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return usage("what follows the prefix cannot be read")
	}
	for name, values := range query {
		switch name {
		case "endpoint":
			endpoint = values[0]
		case "region":
			p.Region = values[0]
		case "patience":
			if p.Patience, err = time.ParseDuration(values[0]); err != nil || p.Patience < time.Millisecond || p.Patience > time.Hour {
				return usage("patience must be a duration such as 20s")
			}
		default:
			return usage("%q is no option", name)
		}
	}
	e, err := url.Parse(endpoint)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || strings.Trim(e.Path, "/") != "" {
		return usage("the endpoint must be http://host:port or https://host:port")
	}
	p.Endpoint, p.Plain = e.Host, e.Scheme == "http"
	return p, nil
}

// S3 is a bucket of a store that speaks the protocol of Amazon's S3.
type S3 struct {
	client *minio.Core
	place  Place
}

var _ Store = (*S3)(nil)

// OpenS3 returns the bucket of a place, without sending anything yet. Keys come from the
// environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; MINIO_ROOT_USER and
// MINIO_ROOT_PASSWORD), the file ~/.aws/credentials ($AWS_PROFILE), or the role of the machine.
func OpenS3(p Place) (*S3, error) {
	client, err := minio.NewCore(p.Endpoint, &minio.Options{
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
	return &S3{client: client, place: p}, nil
}

// absent returns the condition of a write that must not replace anything.
func absent() (o minio.PutObjectOptions) {
	o.SetMatchETagExcept("*")
	return o
}

// Create implements Store.
func (s *S3) Create(ctx context.Context, name string, content []byte) error {
	made, err := s.client.PutObject(ctx, s.place.Bucket, name, bytes.NewReader(content), int64(len(content)), "", "", absent())
	// Every store gives an ETag for an object that it has, so something else has answered.
	if err == nil && made.ETag == "" {
		return fmt.Errorf("%w: whatever answers at %s is no object store", ErrAway, s.place.Endpoint)
	}
	return s.explain(err)
}

// Upload implements Store.
func (s *S3) Upload(ctx context.Context, name string) (Upload, error) {
	id, err := s.client.NewMultipartUpload(ctx, s.place.Bucket, name, minio.PutObjectOptions{})
	if err != nil {
		return nil, s.explain(err)
	}
	return &s3Upload{s: s, name: name, id: id}, nil
}

type s3Upload struct {
	s        *S3
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
func (s *S3) Read(ctx context.Context, name string, p []byte, offset int64) error {
	var o minio.GetObjectOptions
	if err := o.SetRange(offset, offset+int64(len(p))-1); err != nil {
		return fmt.Errorf("read %d bytes at %d: %w", len(p), offset, err)
	}
	body, _, header, err := s.client.GetObject(ctx, s.place.Bucket, name, o)
	if err != nil {
		return s.explain(err)
	}
	defer body.Close() // opened for reading only: nothing can be lost
	if part := header.Get("Content-Range"); !strings.HasPrefix(part, fmt.Sprintf("bytes %d-", offset)) && (offset > 0 || part != "") {
		// These bytes would be taken for damage, and an older checkpoint would be used.
		return fmt.Errorf("bucket %s at %s answers with other bytes (%q) than those at %d of %s that were asked for", s.place.Bucket, s.place.Endpoint, part, offset, name)
	}
	if _, err := io.ReadFull(body, p); err != nil {
		// Not %w: the end of the connection is not the end of the object.
		return fmt.Errorf("%w: %d bytes at %d of %s broke off: %v", ErrAway, len(p), offset, name, err)
	}
	return nil
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, name string) (int64, error) {
	info, err := s.client.StatObject(ctx, s.place.Bucket, name, minio.StatObjectOptions{})
	if err == nil && info.Size < 0 {
		return 0, fmt.Errorf("bucket %s at %s does not say how long %s is: no proxy may change its answers", s.place.Bucket, s.place.Endpoint, name)
	}
	return info.Size, s.explain(err)
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix string) ([]string, error) {
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
func (s *S3) Copy(ctx context.Context, from, to string) error {
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
func (s *S3) Remove(ctx context.Context, name string) error {
	err := s.explain(s.client.RemoveObject(ctx, s.place.Bucket, name, minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// explain converts an answer of the store to an error that says what to do, and that FS can act on.
func (s *S3) explain(err error) error {
	if err == nil {
		return nil
	}
	where := fmt.Sprintf("bucket %s at %s", s.place.Bucket, s.place.Endpoint)
	r, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return fmt.Errorf("%w: %s: %v", ErrAway, where, err) // the network
	}
	switch {
	case r.Code == "PreconditionFailed" || r.StatusCode == http.StatusPreconditionFailed:
		return fs.ErrExist
	case r.Code == "NoSuchKey" || r.Code == "NotFound":
		return fs.ErrNotExist
	case r.Code == "NoSuchBucket":
		return fmt.Errorf("%s does not exist: create it, or correct --store", where)
	case r.Code == "NotImplemented" || r.StatusCode == http.StatusNotImplemented:
		return fmt.Errorf("%s cannot do what checkpoints need, such as conditional writes: %s", where, r.Message)
	case r.StatusCode == http.StatusInsufficientStorage || strings.Contains(r.Code, "StorageFull") || strings.Contains(r.Code, "Quota"):
		return fmt.Errorf("%s is full: %s: %w", where, r.Message, syscall.ENOSPC)
	case r.Code == "RequestTimeTooSkewed":
		return fmt.Errorf("%s refuses (%s): the clock of this machine is wrong, set it: %w", where, r.Code, fs.ErrPermission)
	case r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized || strings.HasSuffix(r.Code, "UserNotFound"): // versitygw: 404 XAdminUserNotFound
		return fmt.Errorf("%s refuses (%s): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or ~/.aws/credentials, and what they allow: %w", where, r.Code, fs.ErrPermission)
	case r.StatusCode >= 500 || r.StatusCode == http.StatusOK || r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusRequestTimeout || r.StatusCode == http.StatusConflict:
		return fmt.Errorf("%w: %s: %d %s", ErrAway, where, r.StatusCode, r.Code)
	}
	return fmt.Errorf("%s: %d %s: %s", where, r.StatusCode, r.Code, r.Message)
}
