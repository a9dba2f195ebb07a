// Package objecttest is an object store for tests: the part of the S3 protocol that package object
// uses, over HTTP, with faults on demand. Begin with New and Server.Fail. It is not an S3 server:
// it compares keys but computes no signatures, and answers every request that package object does
// not send with an error. Real servers are tested separately (see docs/testing.md).
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
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// The keys that a Server accepts, and the bucket that it has.
const (
	Key    = "KINTSUGITEST"
	Secret = "not-a-secret"
	Bucket = "runs"
)

// Fault is what goes wrong with a request; the zero Fault is nothing.
type Fault struct {
	Status int    // answered instead of carrying the request out; 0: none
	Code   string // S3's error code
	Lost   bool   // the request is carried out, and the connection ends before the answer
	Hang   bool   // nothing happens until the client gives up or the server ends
}

// Server is a store with one bucket.
type Server struct {
	Objects object.Mem
	URL     string // http://host:port

	mu      sync.Mutex
	choose  func(n int, r *http.Request) Fault // guarded by mu
	n       int                                // requests so far; guarded by mu
	uploads map[string]*upload                 // by id; guarded by mu
	ended   chan struct{}
}

type upload struct {
	name  string
	parts map[int][]byte
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{uploads: map[string]*upload{}, ended: make(chan struct{})}
	h := httptest.NewServer(s)
	s.URL = h.URL
	t.Cleanup(func() {
		close(s.ended)
		h.CloseClientConnections()
		h.Close()
	})
	return s
}

// Place returns the name of a place in the bucket, in the form of --store.
func (s *Server) Place(prefix string) string {
	return object.Scheme + Bucket + "/" + prefix + "?region=us-east-1&endpoint=" + url.QueryEscape(s.URL)
}

// Fail sets choose, which returns the fault of each request from now on; requests are counted from
// 0. nil: no faults.
func (s *Server) Fail(choose func(n int, r *http.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose, s.n = choose, 0
}

// Requests returns the number of requests since Fail, or since New.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// ServeHTTP implements http.Handler, so that a test may put something in front of the store that
// passes requests on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	var f Fault
	if s.choose != nil {
		f = s.choose(s.n, r)
	}
	s.n++
	s.mu.Unlock()
	switch {
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-s.ended:
		}
		return
	case f.Status != 0:
		refuse(w, f.Status, f.Code, "as the test wants it")
		return
	case f.Lost:
		s.answer(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	s.answer(w, r)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+Key+"/") {
		refuse(w, http.StatusForbidden, "InvalidAccessKeyId", "no such key")
		return
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != Bucket {
		refuse(w, http.StatusNotFound, "NoSuchBucket", "no such bucket")
		return
	}
	body, err := content(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "IncompleteBody", err.Error())
		return
	}
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && name == "":
		s.list(w, q.Get("prefix"), q.Get("delimiter"))
	case q.Has("uploads"), q.Has("uploadId"):
		s.multipart(w, r, name, q, body)
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "":
		s.copy(w, r.Header.Get("X-Amz-Copy-Source"), name)
	case r.Method == http.MethodPut:
		s.create(w, r, name, body)
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		b, ok := s.Objects.Objects()[name]
		if !ok {
			refuse(w, http.StatusNotFound, "NoSuchKey", "no such object")
			return
		}
		w.Header().Set("ETag", `"0"`)
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	case r.Method == http.MethodDelete:
		_ = s.Objects.Remove(context.Background(), name) // memory does not fail
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusNotImplemented, "NotImplemented", r.Method)
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
func (s *Server) create(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	if r.Header.Get("If-None-Match") != "*" {
		refuse(w, http.StatusBadRequest, "InvalidRequest", "a write without a condition could replace a checkpoint")
		return
	}
	if err := s.Objects.Create(r.Context(), name, body); errors.Is(err, fs.ErrExist) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "it exists")
		return
	}
	w.Header().Set("ETag", `"0"`)
}

func (s *Server) copy(w http.ResponseWriter, source, name string) {
	from, err := url.PathUnescape(source)
	from = strings.TrimPrefix(strings.TrimPrefix(from, "/"), Bucket+"/")
	if err == nil {
		err = s.Objects.Copy(context.Background(), from, name)
	}
	if err != nil {
		refuse(w, http.StatusNotFound, "NoSuchKey", from)
		return
	}
	fmt.Fprint(w, `<CopyObjectResult><ETag>"0"</ETag><LastModified>2026-01-02T03:04:05Z</LastModified></CopyObjectResult>`)
}

func (s *Server) multipart(w http.ResponseWriter, r *http.Request, name string, q url.Values, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Has("uploads") {
		id := strconv.Itoa(len(s.uploads) + 1)
		s.uploads[id] = &upload{name: name, parts: map[int][]byte{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
		return
	}
	id := q.Get("uploadId")
	u := s.uploads[id]
	if u == nil || u.name != name {
		refuse(w, http.StatusNotFound, "NoSuchUpload", id)
		return
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil {
			refuse(w, http.StatusBadRequest, "InvalidArgument", err.Error())
			return
		}
		u.parts[number] = body
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
	case http.MethodPost:
		s.complete(w, r, u, id)
	case http.MethodDelete:
		s.uploads[id] = nil
		w.WriteHeader(http.StatusNoContent)
	}
}

// complete joins the parts. The caller holds mu.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, u *upload, id string) {
	var all []byte
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		all = append(all, u.parts[n]...)
	}
	answer := httptest.NewRecorder()
	if s.create(answer, r, u.name, all); answer.Code != http.StatusOK {
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
		return
	}
	s.uploads[id] = nil
	fmt.Fprintf(w, `<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>"0"</ETag></CompleteMultipartUploadResult>`, Bucket, u.name)
}

type listing struct {
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
func (s *Server) list(w http.ResponseWriter, prefix, delimiter string) {
	l := listing{Name: Bucket}
	objects := s.Objects.Objects()
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if folder, _, below := strings.Cut(rest, "/"); below && delimiter == "/" {
			if !folders[folder] {
				folders[folder] = true
				l.CommonPrefixes = append(l.CommonPrefixes, struct{ Prefix string }{prefix + folder + "/"})
			}
			continue
		}
		l.Contents = append(l.Contents, listed{Key: name, Size: len(objects[name]), ETag: `"0"`})
	}
	w.Header().Set("Content-Type", "application/xml")
	text, err := xml.Marshal(l)
	if err != nil {
		panic(err) // names that XML cannot hold are a mistake of the test
	}
	_, _ = w.Write(text) // the client may be gone
}
