package objecttest

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// The account of a server of NewAzure, and its key.
const (
	Account    = "kintsugitest"
	AccountKey = "bm90LWEtc2VjcmV0" // of the bytes of Secret
)

// azure is Azure Blob Storage.
type azure struct {
	s      *Server
	mu     sync.Mutex
	blocks map[string]map[string][]byte // by the names of blobs and blocks; guarded by mu
}

func (z *azure) place(bucket, prefix string) string {
	return object.AzureScheme + bucket + "/" + prefix + "?account=" + Account + "&endpoint=" + url.QueryEscape(z.s.URL+"/"+Account)
}

func (*azure) refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func (z *azure) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Ms-Request-Id", "1")
	if !strings.HasPrefix(r.Header.Get("Authorization"), "SharedKey "+Account+":") {
		z.refuse(w, http.StatusForbidden, "AuthenticationFailed", "no such account")
		return
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"+Account+"/"), "/")
	if bucket != Bucket {
		z.refuse(w, http.StatusNotFound, "ContainerNotFound", "no such container")
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		z.refuse(w, http.StatusBadRequest, "IncompleteBody", err.Error())
		return
	}
	q := r.URL.Query()
	switch comp := q.Get("comp"); {
	case r.Method == http.MethodGet && name == "" && comp == "list":
		z.list(w, q.Get("prefix"), q.Get("delimiter"))
	case r.Method == http.MethodPut && comp == "block":
		z.stage(w, name, q.Get("blockid"), content)
	case r.Method == http.MethodPut && comp == "blocklist":
		z.commit(w, r, name, content)
	case r.Method == http.MethodPut && r.Header.Get("X-Ms-Copy-Source") != "":
		z.copy(w, r.Header.Get("X-Ms-Copy-Source"), name)
	case r.Method == http.MethodPut && r.Header.Get("X-Ms-Blob-Type") == "BlockBlob":
		z.put(w, r, name, content)
	case r.Method == http.MethodGet, r.Method == http.MethodHead, r.Method == http.MethodDelete:
		z.existing(w, r, name)
	default:
		z.refuse(w, http.StatusNotImplemented, "NotImplemented", r.Method+" "+r.URL.String())
	}
}

// existing answers requests for what must exist.
func (z *azure) existing(w http.ResponseWriter, r *http.Request, name string) {
	content, ok := z.s.Objects.Objects()[name]
	if !ok {
		z.refuse(w, http.StatusNotFound, "BlobNotFound", "no such blob")
		return
	}
	if r.Method == http.MethodDelete {
		_ = z.s.Objects.Remove(context.Background(), name) // memory does not fail
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("X-Ms-Blob-Type", "BlockBlob")
	w.Header().Set("ETag", `"0"`)
	r.Header.Set("Range", r.Header.Get("X-Ms-Range"))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// put creates a blob if the request has the condition that every client must send.
func (z *azure) put(w http.ResponseWriter, r *http.Request, name string, content []byte) {
	if r.Header.Get("If-None-Match") != "*" {
		z.refuse(w, http.StatusBadRequest, "InvalidHeaderValue", "a write without a condition could replace a checkpoint")
		return
	}
	if err := z.s.Objects.Create(r.Context(), name, content); errors.Is(err, fs.ErrExist) {
		z.refuse(w, http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
		return
	}
	w.Header().Set("ETag", `"0"`)
	w.WriteHeader(http.StatusCreated)
}

func (z *azure) stage(w http.ResponseWriter, name, block string, content []byte) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.blocks[name] == nil {
		z.blocks[name] = map[string][]byte{}
	}
	for other := range z.blocks[name] {
		if len(other) != len(block) {
			z.refuse(w, http.StatusBadRequest, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
			return
		}
	}
	z.blocks[name][block] = content
	w.WriteHeader(http.StatusCreated)
}

// commit makes a blob of blocks, and forgets all blocks of that name, whoever sent them.
func (z *azure) commit(w http.ResponseWriter, r *http.Request, name string, list []byte) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var asked struct {
		XMLName xml.Name `xml:"BlockList"`
		Latest  []string
	}
	if err := xml.Unmarshal(list, &asked); err != nil {
		z.refuse(w, http.StatusBadRequest, "InvalidXmlDocument", err.Error())
		return
	}
	var all []byte
	for _, block := range asked.Latest {
		content, ok := z.blocks[name][block]
		if !ok {
			z.refuse(w, http.StatusBadRequest, "InvalidBlockList", "The specified block list is invalid.")
			return
		}
		all = append(all, content...)
	}
	status := statusOf{ResponseWriter: w}
	if z.put(&status, r, name, all); status.status == http.StatusCreated {
		delete(z.blocks, name)
	}
}

// statusOf remembers the status of an answer.
type statusOf struct {
	http.ResponseWriter
	status int
}

func (s *statusOf) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (z *azure) copy(w http.ResponseWriter, source, name string) {
	u, err := url.Parse(source)
	if err == nil {
		err = z.s.Objects.Copy(context.Background(), strings.TrimPrefix(u.Path, "/"+Account+"/"+Bucket+"/"), name)
	}
	if err != nil {
		z.refuse(w, http.StatusNotFound, "CannotVerifyCopySource", "The specified resource does not exist.")
		return
	}
	w.Header().Set("X-Ms-Copy-Status", "success")
	w.WriteHeader(http.StatusAccepted)
}

// list answers with the whole list at once, since this is a store for tests.
func (z *azure) list(w http.ResponseWriter, prefix, delimiter string) {
	type named struct{ Name string }
	l := struct {
		XMLName       xml.Name `xml:"EnumerationResults"`
		ContainerName string   `xml:",attr"`
		Blobs         struct{ Blob, BlobPrefix []named }
	}{ContainerName: Bucket}
	names, folders := listing(slices.Sorted(maps.Keys(z.s.Objects.Objects())), prefix, delimiter)
	for _, name := range names {
		l.Blobs.Blob = append(l.Blobs.Blob, named{name})
	}
	for _, folder := range folders {
		l.Blobs.BlobPrefix = append(l.Blobs.BlobPrefix, named{folder})
	}
	w.Header().Set("Content-Type", "application/xml")
	text, err := xml.Marshal(l)
	if err != nil {
		panic(err) // names that XML cannot hold are a mistake of the test
	}
	_, _ = w.Write(text) // the client may be gone
}
