package objecttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// amazon is the S3 protocol.
type amazon struct {
	s       *Server
	mu      sync.Mutex
	uploads map[string]*upload // by id; guarded by mu
}

type upload struct {
	name  string
	parts map[int][]byte
}

func (a *amazon) place(bucket, prefix string) string {
	return object.AmazonScheme + bucket + "/" + prefix + "?region=us-east-1&endpoint=" + url.QueryEscape(a.s.URL)
}

func (*amazon) refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func (a *amazon) answer(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+Key+"/") {
		a.refuse(w, http.StatusForbidden, "InvalidAccessKeyId", "no such key")
		return
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != Bucket {
		a.refuse(w, http.StatusNotFound, "NoSuchBucket", "no such bucket")
		return
	}
	body, err := content(r)
	if err != nil {
		a.refuse(w, http.StatusBadRequest, "IncompleteBody", err.Error())
		return
	}
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && name == "":
		a.list(w, q.Get("prefix"), q.Get("delimiter"))
	case q.Has("uploads"), q.Has("uploadId"):
		a.multipart(w, r, name, q, body)
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "":
		a.copy(w, r.Header.Get("X-Amz-Copy-Source"), name)
	case r.Method == http.MethodPut:
		a.create(w, r, name, body)
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		b, ok := a.s.Objects.Objects()[name]
		if !ok {
			a.refuse(w, http.StatusNotFound, "NoSuchKey", "no such object")
			return
		}
		w.Header().Set("ETag", `"0"`)
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	case r.Method == http.MethodDelete:
		_ = a.s.Objects.Remove(context.Background(), name) // memory does not fail
		w.WriteHeader(http.StatusNoContent)
	default:
		a.refuse(w, http.StatusNotImplemented, "NotImplemented", r.Method)
	}
}

// content returns the content of a request, without the signatures that are put between its pieces
// over plain HTTP.
func content(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var all bytes.Buffer
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		length, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(length, 16, 64)
		if err != nil || n == 0 {
			return all.Bytes(), err
		}
		if _, err := io.CopyN(&all, in, n); err != nil {
			return nil, err
		}
		if _, err := in.Discard(len("\r\n")); err != nil {
			return nil, err
		}
	}
}

// create creates an object if the request has the condition that every client must send.
func (a *amazon) create(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	if r.Header.Get("If-None-Match") != "*" {
		a.refuse(w, http.StatusBadRequest, "InvalidRequest", "a write without a condition could replace a checkpoint")
		return
	}
	if err := a.s.Objects.Create(r.Context(), name, body); errors.Is(err, fs.ErrExist) {
		a.refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "it exists")
		return
	}
	w.Header().Set("ETag", `"0"`)
}

func (a *amazon) copy(w http.ResponseWriter, source, name string) {
	from, err := url.PathUnescape(source)
	from = strings.TrimPrefix(strings.TrimPrefix(from, "/"), Bucket+"/")
	if err == nil {
		err = a.s.Objects.Copy(context.Background(), from, name)
	}
	if err != nil {
		a.refuse(w, http.StatusNotFound, "NoSuchKey", from)
		return
	}
	fmt.Fprint(w, `<CopyObjectResult><ETag>"0"</ETag><LastModified>2026-01-02T03:04:05Z</LastModified></CopyObjectResult>`)
}

func (a *amazon) multipart(w http.ResponseWriter, r *http.Request, name string, q url.Values, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.Has("uploads") {
		id := strconv.Itoa(len(a.uploads) + 1)
		a.uploads[id] = &upload{name: name, parts: map[int][]byte{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
		return
	}
	id := q.Get("uploadId")
	u := a.uploads[id]
	if u == nil || u.name != name {
		a.refuse(w, http.StatusNotFound, "NoSuchUpload", id)
		return
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil {
			a.refuse(w, http.StatusBadRequest, "InvalidArgument", err.Error())
			return
		}
		u.parts[number] = body
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
	case http.MethodPost:
		a.complete(w, r, u, id)
	case http.MethodDelete:
		a.uploads[id] = nil
		w.WriteHeader(http.StatusNoContent)
	}
}

// complete joins the parts. The caller holds mu.
func (a *amazon) complete(w http.ResponseWriter, r *http.Request, u *upload, id string) {
	var all []byte
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		all = append(all, u.parts[n]...)
	}
	answer := httptest.NewRecorder()
	if a.create(answer, r, u.name, all); answer.Code != http.StatusOK {
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
		return
	}
	a.uploads[id] = nil
	fmt.Fprintf(w, `<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>"0"</ETag></CompleteMultipartUploadResult>`, Bucket, u.name)
}

type bucketList struct {
	XMLName        xml.Name `xml:"ListBucketResult"`
	Name           string
	IsTruncated    bool
	Contents       []listed
	CommonPrefixes []struct{ Prefix string }
}

type listed struct {
	Key  string
	Size int
	ETag string
}

// list answers with the whole list at once, since this is a store for tests.
func (a *amazon) list(w http.ResponseWriter, prefix, delimiter string) {
	l := bucketList{Name: Bucket}
	objects := a.s.Objects.Objects()
	names, folders := listing(slices.Sorted(maps.Keys(objects)), prefix, delimiter)
	for _, name := range names {
		l.Contents = append(l.Contents, listed{Key: name, Size: len(objects[name]), ETag: `"0"`})
	}
	for _, folder := range folders {
		l.CommonPrefixes = append(l.CommonPrefixes, struct{ Prefix string }{folder})
	}
	w.Header().Set("Content-Type", "application/xml")
	text, err := xml.Marshal(l)
	if err != nil {
		panic(err) // names that XML cannot hold are a mistake of the test
	}
	_, _ = w.Write(text) // the client may be gone
}
