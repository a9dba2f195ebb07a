package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/kintsugi-ml/kintsugi"
)

// azureStore is a container of Azure Blob Storage.
type azureStore struct {
	client *container.Client
	place  Place
}

var _ Store = (*azureStore)(nil)

// openAzure returns the container of a place. It has a key of the account (AZURE_STORAGE_KEY), a
// signature (AZURE_STORAGE_SAS_TOKEN), or a token of whoever is signed in: a service principal or a
// workload identity in the environment, the identity of this machine, or the user of az login.
func openAzure(p Place, getenv func(string) string) (*azureStore, error) {
	o := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Retry:     policy.RetryOptions{MaxRetries: -1}, // FS repeats requests: it knows what must be compared afterwards
		Telemetry: policy.TelemetryOptions{ApplicationID: "kintsugi"},
	}}
	scheme := "https://"
	if p.Plain {
		scheme = "http://"
	}
	at := scheme + p.Endpoint + "/" + p.Bucket
	key, signature := getenv("AZURE_STORAGE_KEY"), strings.TrimPrefix(getenv("AZURE_STORAGE_SAS_TOKEN"), "?")
	var client *container.Client
	var err error
	switch {
	case key != "":
		var c *container.SharedKeyCredential
		if c, err = container.NewSharedKeyCredential(p.Account, key); err == nil {
			client, err = container.NewClientWithSharedKeyCredential(at, c, o)
		}
	case p.Plain:
		err = errors.New("a signature or token without TLS could be taken by anybody: give a key, or https")
	case signature != "":
		client, err = container.NewClientWithNoCredential(at+"?"+signature, o)
	default:
		var c *azidentity.DefaultAzureCredential
		if c, err = azidentity.NewDefaultAzureCredential(nil); err == nil {
			client, err = container.NewClient(at, c, o)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: check %s: %w", kintsugi.ErrUsage, p.where(), p.keys(), err)
	}
	return &azureStore{client: client, place: p}, nil
}

// vacant are the conditions of a write that must not replace anything.
func vacant() *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}
}

// Create implements Store.
func (s *azureStore) Create(ctx context.Context, name string, content []byte) error {
	made, err := s.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{AccessConditions: vacant()})
	return s.check(err, made.RequestID)
}

// check converts an error of the client, or returns one if the answer lacks the number that the store
// gives to each request: then something else has answered.
func (s *azureStore) check(err error, request *string) error {
	if err == nil && request == nil {
		return s.place.impostor()
	}
	return s.explain(err)
}

// Upload implements Store. The store keeps the blocks of an upload until it ends, or for a week.
func (s *azureStore) Upload(_ context.Context, name string) (Upload, error) {
	return &azureUpload{s: s, blob: s.client.NewBlockBlobClient(name), id: rand.Text(), sent: map[int]string{}}, nil
}

type azureUpload struct {
	s    *azureStore
	blob *blockblob.Client
	id   string // of this upload: all that write to a name have their blocks in one place

	mu   sync.Mutex
	sent map[int]string // the names of blocks by the numbers of their parts; guarded by mu
}

// Part implements Upload.
func (u *azureUpload) Part(ctx context.Context, number int, content []byte) error {
	// All names of blocks of one blob must be equally long.
	block := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%05d", u.id, number))
	staged, err := u.blob.StageBlock(ctx, block, streaming.NopCloser(bytes.NewReader(content)), nil)
	if err := u.s.check(err, staged.RequestID); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent[number] = block
	return nil
}

// Complete implements Upload.
func (u *azureUpload) Complete(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var blocks []string
	for _, number := range slices.Sorted(maps.Keys(u.sent)) {
		blocks = append(blocks, u.sent[number])
	}
	made, err := u.blob.CommitBlockList(ctx, blocks, &blockblob.CommitBlockListOptions{AccessConditions: vacant()})
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok && e.ErrorCode == "InvalidBlockList" {
		// The blocks are gone. An earlier try, whose answer was lost, has made the object of them, or
		// another client has made it of its own.
		return fmt.Errorf("%w: the upload is over already, and whether the object is this one is unknown", fs.ErrExist)
	}
	return u.s.check(err, made.RequestID)
}

// Abort implements Upload. Blocks cannot be removed; the store forgets them after a week.
func (u *azureUpload) Abort(context.Context) error { return nil }

// Read implements Store.
func (s *azureStore) Read(ctx context.Context, name string, p []byte, offset int64) error {
	r, err := s.client.NewBlobClient(name).DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset, Count: int64(len(p))}})
	if err != nil {
		return s.explain(err)
	}
	defer r.Body.Close() // opened for reading only: nothing can be lost
	var part string
	if r.ContentRange != nil {
		part = *r.ContentRange
	}
	return fill(s.place.where(), name, p, r.Body, offset, part)
}

// Begin implements Store.
func (s *azureStore) Begin(ctx context.Context, name string, p []byte) (int64, error) {
	r, err := s.client.NewBlobClient(name).DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Count: int64(len(p))}})
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok && e.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return unread(ctx, s, name)
	}
	if err != nil {
		return 0, s.explain(err)
	}
	defer r.Body.Close() // opened for reading only: nothing can be lost
	if r.RequestID == nil || r.BlobType == nil {
		return 0, s.place.impostor()
	}
	length, part := int64(-1), ""
	if r.ContentLength != nil {
		length = *r.ContentLength
	}
	if r.ContentRange != nil {
		part = *r.ContentRange
	}
	return begin(s.place.where(), name, p, r.Body, length, part)
}

// Stat implements Store.
func (s *azureStore) Stat(ctx context.Context, name string) (int64, error) {
	about, err := s.client.NewBlobClient(name).GetProperties(ctx, nil)
	if err != nil {
		return 0, s.explain(err)
	}
	if about.RequestID == nil || about.BlobType == nil {
		return 0, s.place.impostor()
	}
	if about.ContentLength == nil {
		return 0, lengthless(s.place.where(), name)
	}
	return *about.ContentLength, nil
}

// List implements Store.
func (s *azureStore) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for pages := s.client.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix}); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.explain(err)
		}
		if page.ContainerName == nil || page.Segment == nil {
			return nil, s.place.impostor()
		}
		var found []*string
		for _, item := range page.Segment.BlobItems {
			found = append(found, item.Name)
		}
		for _, folder := range page.Segment.BlobPrefixes {
			found = append(found, folder.Name)
		}
		for _, name := range found {
			if name == nil {
				return nil, s.place.impostor()
			}
			if name := strings.TrimSuffix(strings.TrimPrefix(*name, prefix), "/"); name != "" {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// Copy implements Store.
func (s *azureStore) Copy(ctx context.Context, from, name string) error {
	made := s.client.NewBlobClient(name)
	copied, err := made.StartCopyFromURL(ctx, s.client.NewBlobClient(from).URL(), nil)
	if err != nil {
		return s.explain(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for state := copied.CopyStatus; state == nil || *state != blob.CopyStatusTypeSuccess; {
		if state == nil || *state != blob.CopyStatusTypePending {
			return fmt.Errorf("%s has not copied %s to %s", s.place.where(), from, name)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		about, err := made.GetProperties(ctx, nil)
		if err != nil {
			return s.explain(err)
		}
		state = about.CopyStatus
	}
	return nil
}

// Remove implements Store.
func (s *azureStore) Remove(ctx context.Context, name string) error {
	removed, err := s.client.NewBlobClient(name).Delete(ctx, nil)
	if err = s.check(err, removed.RequestID); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// explain converts an error of the client.
func (s *azureStore) explain(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		if _, noToken := errors.AsType[interface {
			error
			NonRetriable()
		}](err); noToken { // the client asks for a token before it asks the store
			first, _, _ := strings.Cut(err.Error(), "\n")
			return s.place.refuses(first)
		}
		return s.place.silent(err)
	}
	switch {
	case e.ErrorCode == "BlobAlreadyExists":
		return fs.ErrExist
	case e.ErrorCode == "BlobNotFound" || e.ErrorCode == "ResourceNotFound":
		return fs.ErrNotExist
	case e.ErrorCode == "ContainerNotFound":
		return s.place.noBucket()
	}
	return answer{status: e.StatusCode, code: e.ErrorCode, message: http.StatusText(e.StatusCode)}.err(s.place)
}
