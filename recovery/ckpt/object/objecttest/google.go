package objecttest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// google is the JSON interface of Google Cloud Storage.
type google struct{ s *Server }

func (g *google) place(bucket, prefix string) string {
	return object.GoogleScheme + bucket + "/" + prefix + "?endpoint=" + url.QueryEscape(g.s.URL)
}

func (*google) refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"errors":[{"message":%[2]q,"domain":"global","reason":%q}]}}`, status, message, code)
}

func say(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}

func (g *google) answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		g.refuse(w, http.StatusBadRequest, "invalid", "a token without TLS could be taken by anybody")
		return
	}
	// What stands in a name as a slash is %2F in the path.
	path, isUpload := strings.CutPrefix(r.URL.EscapedPath(), "/upload")
	bucket, rest, _ := strings.Cut(strings.TrimPrefix(path, "/storage/v1/b/"), "/o")
	if bucket != Bucket {
		g.refuse(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
		return
	}
	var words []string
	for word := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		word, err := url.PathUnescape(word)
		if err != nil {
			g.refuse(w, http.StatusBadRequest, "invalid", err.Error())
			return
		}
		words = append(words, word)
	}
	q := r.URL.Query()
	switch name := words[0]; {
	case isUpload && r.Method == http.MethodPost && q.Get("uploadType") == "multipart":
		g.insert(w, r, q)
	case r.Method == http.MethodPost && len(words) == 2 && words[1] == "compose":
		g.compose(w, r, name, q)
	case r.Method == http.MethodPost && len(words) == 6 && words[1] == "rewriteTo":
		g.rewrite(w, name, words[5], q)
	case r.Method == http.MethodGet && name == "":
		g.list(w, q.Get("prefix"), q.Get("delimiter"))
	case r.Method == http.MethodGet && len(words) == 1:
		g.get(w, r, name, q)
	case r.Method == http.MethodDelete && len(words) == 1:
		if _, ok := g.s.Objects.Objects()[name]; !ok {
			g.refuse(w, http.StatusNotFound, "notFound", "No such object: "+Bucket+"/"+name)
			return
		}
		_ = g.s.Objects.Remove(context.Background(), name) // memory does not fail
		w.WriteHeader(http.StatusNoContent)
	default:
		g.refuse(w, http.StatusNotImplemented, "notImplemented", r.Method+" "+r.URL.String())
	}
}

// insert creates or replaces an object.
func (g *google) insert(w http.ResponseWriter, r *http.Request, q url.Values) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		g.refuse(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	var about storage.Object
	var content []byte
	for i := range 2 {
		var body []byte
		part, err := parts.NextPart()
		if err == nil {
			body, err = io.ReadAll(part)
		}
		if err == nil && i == 0 {
			err = json.Unmarshal(body, &about)
		}
		if err != nil {
			g.refuse(w, http.StatusBadRequest, "invalid", err.Error())
			return
		}
		content = body
	}
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))
	if about.Crc32c != base64.StdEncoding.EncodeToString(sum[:]) {
		g.refuse(w, http.StatusBadRequest, "invalid", "the content has another checksum")
		return
	}
	g.put(w, r, about.Name, content, q)
}

// put makes an object exist, under the condition that the request has. All but the parts of an upload
// must have one.
func (g *google) put(w http.ResponseWriter, r *http.Request, name string, content []byte, q url.Values) {
	switch {
	case q.Get("ifGenerationMatch") == "0":
		if err := g.s.Objects.Create(r.Context(), name, content); errors.Is(err, fs.ErrExist) {
			g.refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
			return
		}
	case strings.Contains(name, "tmp/upload-"):
		g.s.Objects.Put(name, content)
	default:
		g.refuse(w, http.StatusBadRequest, "invalid", "a write without a condition could replace a checkpoint")
		return
	}
	say(w, about(name, content))
}

func about(name string, content []byte) *storage.Object {
	return &storage.Object{Kind: "storage#object", Name: name, Bucket: Bucket, Size: uint64(len(content)), Generation: 1}
}

// compose joins objects, which stay.
func (g *google) compose(w http.ResponseWriter, r *http.Request, name string, q url.Values) {
	var asked storage.ComposeRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		g.refuse(w, http.StatusBadRequest, "parseError", err.Error())
		return
	}
	if n := len(asked.SourceObjects); n < 1 || n > 32 {
		g.refuse(w, http.StatusBadRequest, "invalid", "The number of source components provided exceeds the maximum (32).")
		return
	}
	all, objects := []byte{}, g.s.Objects.Objects()
	for _, from := range asked.SourceObjects {
		content, ok := objects[from.Name]
		if !ok {
			g.refuse(w, http.StatusNotFound, "notFound", "No such object: "+Bucket+"/"+from.Name)
			return
		}
		all = append(all, content...)
	}
	g.put(w, r, name, all, q)
}

// rewrite copies an object, in two requests.
func (g *google) rewrite(w http.ResponseWriter, from, to string, q url.Values) {
	content, ok := g.s.Objects.Objects()[from]
	switch {
	case !ok:
		g.refuse(w, http.StatusNotFound, "notFound", "No such object: "+Bucket+"/"+from)
	case q.Get("rewriteToken") == "":
		say(w, storage.RewriteResponse{Kind: "storage#rewriteResponse", RewriteToken: "half", ObjectSize: int64(len(content))})
	default:
		g.s.Objects.Put(to, content)
		say(w, storage.RewriteResponse{Kind: "storage#rewriteResponse", Done: true, Resource: about(to, content)})
	}
}

func (g *google) get(w http.ResponseWriter, r *http.Request, name string, q url.Values) {
	content, ok := g.s.Objects.Objects()[name]
	isContent := q.Get("alt") == "media"
	switch {
	case !ok && isContent:
		http.Error(w, "No such object: "+Bucket+"/"+name, http.StatusNotFound)
	case !ok:
		g.refuse(w, http.StatusNotFound, "notFound", "No such object: "+Bucket+"/"+name)
	case isContent:
		w.Header().Set("X-Goog-Generation", "1")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	default:
		say(w, about(name, content))
	}
}

// list answers with the whole list at once, since this is a store for tests.
func (g *google) list(w http.ResponseWriter, prefix, delimiter string) {
	names, folders := listing(slices.Sorted(maps.Keys(g.s.Objects.Objects())), prefix, delimiter)
	l := storage.Objects{Kind: "storage#objects", Prefixes: folders}
	for _, name := range names {
		l.Items = append(l.Items, &storage.Object{Name: name})
	}
	say(w, l)
}
