// Package objecttest is an object store for tests: the parts that package object uses of the
// protocols that it speaks, over HTTP, with faults on demand. Begin with New, NewGoogle or
// NewAzure, and Server.Fail. It is no real server: it compares keys but computes no signatures, and answers every
// request that package object does not send with an error. Real servers are tested separately (see
// docs/testing.md).
package objecttest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// The keys that a server of New accepts, and the bucket that every Server has.
const (
	Key    = "KINTSUGITEST"
	Secret = "not-a-secret"
	Bucket = "runs"
)

// Fault is what goes wrong with a request; the zero Fault is nothing.
type Fault struct {
	Status int    // answered instead of carrying the request out; 0: none
	Code   string // the protocol's error code
	Lost   bool   // the request is carried out, and the connection ends before the answer
	Hang   bool   // nothing happens until the client gives up or the server ends
}

// Server is a store with one bucket.
type Server struct {
	Objects object.Mem
	URL     string // http://host:port

	protocol protocol
	ended    chan struct{}

	mu     sync.Mutex
	choose func(n int, r *http.Request) Fault // guarded by mu
	n      int                                // requests so far; guarded by mu
}

// protocol is what clients and a Server say to one another.
type protocol interface {
	answer(w http.ResponseWriter, r *http.Request)
	refuse(w http.ResponseWriter, status int, code, message string)
	place(bucket, prefix string) string // in the form of --store
}

// New starts a server that speaks S3 and ends with the test.
func New(t testing.TB) *Server {
	s := &Server{}
	s.protocol = &amazon{s: s, uploads: map[string]*upload{}}
	return s.start(t)
}

// NewGoogle starts a server that speaks the JSON interface of Google Cloud Storage and ends with the
// test.
func NewGoogle(t testing.TB) *Server {
	s := &Server{}
	s.protocol = &google{s: s}
	return s.start(t)
}

// NewAzure starts a server that speaks as Azure Blob Storage and ends with the test.
func NewAzure(t testing.TB) *Server {
	s := &Server{}
	s.protocol = &azure{s: s, blocks: map[string]map[string][]byte{}}
	return s.start(t)
}

func (s *Server) start(t testing.TB) *Server {
	s.ended = make(chan struct{})
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
func (s *Server) Place(prefix string) string { return s.protocol.place(Bucket, prefix) }

// Elsewhere returns the name of a place in a bucket that does not exist.
func (s *Server) Elsewhere(bucket string) string { return s.protocol.place(bucket, "x") }

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
		s.protocol.refuse(w, f.Status, f.Code, "as the test wants it")
		return
	case f.Lost:
		s.protocol.answer(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	s.protocol.answer(w, r)
}

// listing returns those of the sorted names that begin with prefix and have no delimiter after it,
// and what the others have up to their first delimiter, each once.
func listing(sorted []string, prefix, delimiter string) (names, folders []string) {
	for _, name := range sorted {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if folder, _, below := strings.Cut(rest, delimiter); below && delimiter != "" {
			folders = append(folders, prefix+folder+delimiter)
			continue
		}
		names = append(names, name)
	}
	return names, slices.Compact(folders)
}
