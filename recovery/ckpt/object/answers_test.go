package object_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
)

// places lists, by protocol, the places in a store at an address.
func places(address string) map[string]string {
	at := url.QueryEscape(address)
	return map[string]string{
		"s3": "s3://runs/x?region=us-east-1&endpoint=" + at,
		"gs": "gs://runs/x?endpoint=" + at,
		"az": "az://runs/x?account=" + objecttest.Account + "&endpoint=" + at,
	}
}

// answering returns stores, by protocol, whose answers come from a function, to play what proxies and
// unusual servers make of a protocol.
func answering(t *testing.T, answer http.HandlerFunc) map[string]*object.FS {
	t.Helper()
	keys(t, objecttest.Key)
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	all := map[string]*object.FS{}
	for protocol, place := range places(s.URL) {
		all[protocol] = object.NewFS(t.Context(), open(t, place), quick)
	}
	return all
}

// stamped sets the headers that every answer about an object has.
func stamped(w http.ResponseWriter) {
	w.Header().Set("ETag", `"0"`)
	w.Header().Set("X-Ms-Blob-Type", "BlockBlob")
	w.Header().Set("X-Ms-Request-Id", "1")
	w.Header().Set("X-Goog-Generation", "1")
	w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
}

// A proxy that compresses answers drops their length. An object of unknown length is an error, and
// not an object of 0 or −1 bytes.
func TestAnAnswerWithoutALengthIsAnError(t *testing.T) {
	chunked := func(w http.ResponseWriter, _ *http.Request) {
		stamped(w)
		w.Header().Set("Transfer-Encoding", "chunked")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
	}
	for protocol, fsys := range answering(t, chunked) {
		if info, err := fsys.Stat("x"); err == nil {
			t.Errorf("%s: an object of %d bytes", protocol, info.Size)
		}
		if _, err := fsys.Open("x"); err == nil {
			t.Errorf("%s: an object of unknown length was opened", protocol)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(chunked))
	t.Cleanup(s.Close)
	if n, err := object.OpenMemory(s.Listener.Addr().String(), nil).Stat(t.Context(), "x"); err == nil {
		t.Errorf("an object of %d bytes in the memory of another process", n)
	}
}

// An answer of JSON that is not about the object is no object of 0 bytes.
func TestAnAnswerAboutSomethingElseIsAnError(t *testing.T) {
	fsys := answering(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"sign in"}`) })["gs"]
	if info, err := fsys.Stat("x"); !errors.Is(err, object.ErrAway) {
		t.Errorf("an object of %d bytes, %v", info.Size, err)
	}
	if names, err := fsys.List("x"); !errors.Is(err, object.ErrAway) {
		t.Errorf("a list of %d names, %v", len(names), err)
	}
	if err := fsys.Publish("x", []byte("x")); !errors.Is(err, object.ErrAway) {
		t.Errorf("published: %v", err)
	}
	if err := write(fsys, "x", make([]byte, object.PartBytes+1)); err == nil {
		t.Error("a large object was written")
	}
	if err := fsys.Rename("x", "y"); err == nil {
		t.Error("an object was renamed")
	}
}

// A store or proxy that ignores which part of an object was asked for sends it from its beginning.
// That must not be taken for damage, since an older checkpoint would be used then.
func TestAnAnswerWithAnotherPartIsAnError(t *testing.T) {
	content := random(1_000_000)
	for protocol, fsys := range answering(t, func(w http.ResponseWriter, r *http.Request) {
		stamped(w)
		if strings.HasPrefix(r.URL.Path, "/storage/v1/") && r.URL.Query().Get("alt") == "json" {
			fmt.Fprint(w, `{"name":"x","size":"1000000"}`)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(content) // the client may be gone
		}
	}) {
		f, err := fsys.Open("x")
		if err != nil {
			t.Fatal(protocol, err)
		}
		got := make([]byte, 100)
		if n, err := f.ReadAt(got, 900_000); err == nil {
			t.Errorf("%s: %d other bytes came", protocol, n)
		}
		if n, err := f.ReadAt(got, 0); err != nil || !slices.Equal(got, content[:len(got)]) { // here the object begins with what was asked for
			t.Errorf("%s: %d bytes, %v", protocol, n, err)
		}
	}
}

// AWS may find out that an upload cannot be completed after it has said 200. Another try helps.
func TestAnErrorIn200IsAnError(t *testing.T) {
	keys(t, objecttest.Key)
	server := objecttest.New(t)
	ends := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			if ends++; ends == 1 {
				fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<Error><Code>InternalError</Code><Message>We encountered an internal error. Please try again.</Message></Error>`)
				return
			}
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	fsys := object.NewFS(t.Context(), open(t, places(proxy.URL)["s3"]), quick)
	if err := write(fsys, "large", make([]byte, object.PartBytes+1)); err != nil {
		t.Error(err)
	}
	if n := len(server.Objects.Objects()["large"]); n != object.PartBytes+1 {
		t.Errorf("the object has %d bytes", n)
	}
}

// A list of many names comes in pages, of which the last says that it is.
func TestAListOfSeveralPagesIsOneList(t *testing.T) {
	const pages = 5
	for protocol, form := range map[string]struct{ token, head, more, next, item, foot string }{
		"s3": {"continuation-token", "<ListBucketResult><Name>runs</Name>", "<IsTruncated>true</IsTruncated>", "<NextContinuationToken>%d</NextContinuationToken>",
			"<Contents><Key>run/%05d</Key><Size>1</Size></Contents>", "</ListBucketResult>"},
		"gs": {"pageToken", `{"kind":"storage#objects"`, "", `,"nextPageToken":"%d"`, `,"prefixes":["run/%05d/"]`, "}"},
		"az": {"marker", `<EnumerationResults ContainerName="runs">`, "", "<NextMarker>%d</NextMarker>", "<Blobs><Blob><Name>run/%05d</Name></Blob></Blobs>", "</EnumerationResults>"},
	} {
		each := 1000
		if protocol != "s3" {
			each = 1 // the form has one item in a list
		}
		broken := false
		fsys := answering(t, func(w http.ResponseWriter, r *http.Request) {
			page := 0
			_, _ = fmt.Sscan(r.URL.Query().Get(form.token), &page) // none: the first page
			if broken && page == 2 {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if strings.HasPrefix(form.head, "<") {
				w.Header().Set("Content-Type", "application/xml")
			}
			fmt.Fprint(w, form.head)
			if page < pages-1 {
				fmt.Fprint(w, form.more)
				fmt.Fprintf(w, form.next, page+1)
			}
			for i := range each {
				fmt.Fprintf(w, form.item, each*page+i)
			}
			fmt.Fprint(w, form.foot)
		})[protocol]
		names, err := fsys.List("run")
		if last := fmt.Sprintf("%05d", each*pages-1); err != nil || len(names) != each*pages || names[0] != "00000" || names[len(names)-1] != last {
			t.Errorf("%s: %d names, %v", protocol, len(names), err)
		}
		broken = true
		if names, err := fsys.List("run"); err == nil {
			t.Errorf("%s: a list that breaks off is one of %d names", protocol, len(names))
		}
	}
}

// A list whose items have no names is no list, and nothing panics because of it.
func TestAListWithoutNamesIsAnError(t *testing.T) {
	for protocol, text := range map[string]string{
		"gs": `{"kind":"storage#objects","items":[null]}`,
		"az": `<EnumerationResults ContainerName="runs"><Blobs><Blob></Blob><BlobPrefix></BlobPrefix></Blobs></EnumerationResults>`,
	} {
		fsys := answering(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })[protocol]
		if names, err := fsys.List("run"); !errors.Is(err, object.ErrAway) {
			t.Errorf("%s: a list of %q, %v", protocol, names, err)
		}
	}
}

// A page that says that there are more, and not where, is no end of a list.
func TestAListThatBreaksOffIsAnError(t *testing.T) {
	fsys := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, "<ListBucketResult><Name>runs</Name><IsTruncated>true</IsTruncated></ListBucketResult>")
	})["s3"]
	if names, err := fsys.List("run"); err == nil {
		t.Errorf("a list that breaks off is one of %d names", len(names))
	}
}

// Something in front of a store may answer in its place. Nothing is published by such an answer.
func TestAnAnswerThatIsNotTheStoresPublishesNothing(t *testing.T) {
	for _, status := range []int{200, 201, 204, 302, 400, 403, 404, 502} {
		for protocol, fsys := range answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<html>sign in</html>")) // the client may be gone
		}) {
			if status == 302 && protocol == "s3" && race.Enabled {
				continue // when redirected, minio-go 7.4.1 closes a body twice at the same time
			}
			if err := fsys.Publish("run/x", []byte("x")); err == nil || errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: a page with status %d for an object: %v", protocol, status, err)
			}
			if err := write(fsys, "run/y", make([]byte, object.PartBytes+1)); err == nil || errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: a page with status %d for a large object: %v", protocol, status, err)
			}
			if _, err := fsys.Open("run/x"); err == nil {
				t.Errorf("%s: a page with status %d was opened", protocol, status)
			}
			if names, err := fsys.List("run"); err == nil || strings.Count(err.Error(), object.ErrAway.Error()) > 1 {
				t.Errorf("%s: a page with status %d for a list of %d names: %v", protocol, status, len(names), err)
			}
		}
	}
}

// A wrong clock is reported as that, and not as wrong keys.
func TestAWrongClockIsToldAsOne(t *testing.T) {
	fsys := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the server's time is too large.</Message></Error>")
	})["s3"]
	if _, err := fsys.List("run"); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Error(err)
	}
}

// A body that is longer than any memory is refused before it is read.
func TestAKeeperRefusesABodyOfAnyLength(t *testing.T) {
	k := object.NewKeeper(1000)
	if err := object.OpenMemory(keep(t, k), nil).Create(t.Context(), "a", random(10)); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPut, "/objects/b", strings.NewReader("x"))
	r.ContentLength = 1<<63 - 1
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	if w.Code != http.StatusInsufficientStorage {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}
