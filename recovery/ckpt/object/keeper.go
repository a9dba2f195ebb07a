package object

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Keeper serves the memory of its process as a store, over HTTP; OpenMemory connects to it. It is
// for the running checkpoint of servers on other hosts. The checkpoint survives the loss of any of
// those, but not that of the keeper. It is safe for concurrent use.
//
//	PUT    /objects/NAME            create; If-None-Match: * is implied
//	PUT    /objects/NAME?from=OTHER copy, which replaces
//	GET    /objects/NAME            read, with a Range
//	HEAD   /objects/NAME            stat
//	DELETE /objects/NAME            remove
//	GET    /names/PREFIX            list, as a JSON array
//	POST   /uploads                 begin an upload; its number is the answer
//	PUT    /uploads/N/I             part I of it
//	POST   /uploads/N?name=NAME     complete
//	DELETE /uploads/N               abort
//
// It refuses requests with 404, 412 (the object exists), 507 (no room) or 400, and a line that
// gives the reason.
type Keeper struct {
	mem   Mem
	limit int64

	mu      sync.Mutex
	last    int             // number of the newest upload
	uploads map[int]*keeper // guarded by mu
}

// keeper is an upload, and the time of its last request.
type keeper struct {
	parts map[int][]byte
	bytes int64
	heard time.Time
}

// forgotten is the time without a request after which the parts of an upload are discarded, because
// its client is gone.
const forgotten = 10 * time.Minute

// NewKeeper returns an empty keeper of at most limit bytes of objects and parts.
func NewKeeper(limit int64) *Keeper { return &Keeper{limit: limit, uploads: map[int]*keeper{}} }

// Used returns the bytes of all objects and parts, and how many objects there are.
func (k *Keeper) Used() (n int64, objects int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used(), k.mem.count()
}

// used returns the bytes of Used. The caller holds mu.
func (k *Keeper) used() int64 {
	n := k.mem.bytes()
	for _, u := range k.uploads {
		n += u.bytes
	}
	return n
}

// ServeHTTP implements http.Handler.
func (k *Keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := k.serve(w, r)
	status := http.StatusBadRequest
	switch {
	case err == nil:
		return
	case errors.Is(err, fs.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, fs.ErrExist):
		status = http.StatusPreconditionFailed
	case errors.Is(err, syscall.ENOSPC):
		status = http.StatusInsufficientStorage
	}
	http.Error(w, err.Error(), status)
}

func (k *Keeper) serve(w http.ResponseWriter, r *http.Request) error {
	kind, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch kind {
	case "objects":
		return k.object(w, r, name)
	case "names":
		names, err := k.mem.List(r.Context(), name)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(names)
	case "uploads":
		return k.upload(w, r, name)
	}
	return fmt.Errorf("there is no %q here: this is the memory of kintsugi memory", kind)
}

func (k *Keeper) object(w http.ResponseWriter, r *http.Request, name string) error {
	if name == "" {
		return fmt.Errorf("%s without the name of an object", r.Method)
	}
	switch r.Method {
	case http.MethodPut:
		if from := r.URL.Query().Get("from"); from != "" {
			return k.mem.Copy(r.Context(), from, name)
		}
		b, err := k.content(r)
		if err != nil {
			return err
		}
		return k.add(name, b)
	case http.MethodGet, http.MethodHead:
		b, err := k.mem.get(name)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
		return nil
	case http.MethodDelete:
		return k.mem.Remove(r.Context(), name)
	}
	return fmt.Errorf("%s of an object", r.Method)
}

// content reads the body of a request, if there is room for it.
func (k *Keeper) content(r *http.Request) ([]byte, error) {
	n := r.ContentLength
	if n < 0 {
		return nil, errors.New("a body of unknown length")
	}
	k.mu.Lock()
	used := k.used()
	k.mu.Unlock()
	if n > k.limit-used {
		return nil, k.full(used, n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r.Body, b)
	return b, err
}

func (k *Keeper) full(used, n int64) error {
	return fmt.Errorf("%w: %d of %d bytes are used, and %d more are asked for", syscall.ENOSPC, used, k.limit, n)
}

// add creates an object from bytes that the caller does not use any more.
func (k *Keeper) add(name string, b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if used := k.used(); used+int64(len(b)) > k.limit {
		return k.full(used, int64(len(b)))
	}
	return k.mem.add(name, b)
}

func (k *Keeper) upload(w http.ResponseWriter, r *http.Request, rest string) error {
	if rest == "" {
		_, err := fmt.Fprint(w, k.begin(time.Now()))
		return err
	}
	id, part, ofPart := strings.Cut(rest, "/")
	n, err := strconv.Atoi(id)
	if err != nil {
		return fmt.Errorf("%q is no upload", id)
	}
	switch r.Method {
	case http.MethodPut:
		i, err := strconv.Atoi(part)
		if err != nil || !ofPart || i < 1 || i > maxParts {
			return fmt.Errorf("%q is no part", part)
		}
		b, err := k.content(r)
		if err != nil {
			return err
		}
		return k.part(n, i, b)
	case http.MethodPost:
		return k.complete(n, r.URL.Query().Get("name"))
	case http.MethodDelete:
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.uploads, n)
		return nil
	}
	return fmt.Errorf("%s of an upload", r.Method)
}

// maxParts is the number of parts that an object store accepts in one upload.
const maxParts = 10_000

func (k *Keeper) begin(now time.Time) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, u := range k.uploads {
		if now.Sub(u.heard) > forgotten {
			delete(k.uploads, id)
		}
	}
	k.last++
	k.uploads[k.last] = &keeper{parts: map[int][]byte{}, heard: now}
	return k.last
}

func (k *Keeper) part(id, number int, b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.uploads[id]
	if u == nil {
		return fmt.Errorf("%w: upload %d is over, or was forgotten", fs.ErrNotExist, id)
	}
	if used := k.used(); used+int64(len(b)) > k.limit {
		return k.full(used, int64(len(b)))
	}
	u.bytes += int64(len(b) - len(u.parts[number]))
	u.parts[number], u.heard = b, time.Now()
	return nil
}

// complete joins the parts. For a moment, memory holds them twice.
func (k *Keeper) complete(id int, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.uploads[id]
	// An earlier try, whose answer was lost, has completed it, or another client has aborted it.
	if u == nil {
		return fmt.Errorf("%w: the upload is over already, and whether the object is this one is unknown", fs.ErrExist)
	}
	all := make([]byte, 0, u.bytes)
	for i := 1; i <= len(u.parts); i++ {
		if u.parts[i] == nil {
			return fmt.Errorf("part %d of %d is missing", i, len(u.parts))
		}
		all = append(all, u.parts[i]...)
	}
	if err := k.mem.add(name, all); err != nil {
		return err
	}
	delete(k.uploads, id)
	return nil
}

// MemoryScheme is the beginning of the name of a place in the memory of another process:
// memory://host:port/prefix.
const MemoryScheme = "memory://"

// Memory is the store of a Keeper in another process.
type Memory struct {
	base   string // http://host:port or https://host:port
	where  string // host:port
	client *http.Client
}

var _ Store = (*Memory)(nil)

// OpenMemory returns the store at an address, host:port, without sending anything yet. secured
// connects by TLS; nil: connections are plain TCP.
func OpenMemory(address string, secured func(ctx context.Context, network, address string) (net.Conn, error)) *Memory {
	// Processes of a run never use the web proxies of the environment.
	t := &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, DialTLSContext: secured}
	base := "http://" + address
	if secured != nil {
		base = "https://" + address
	}
	return &Memory{base: base, where: address, client: &http.Client{Transport: t}}
}

// do sends a request and returns the answer, or an error as documented at Store. The caller closes
// the body of the answer.
func (m *Memory) do(ctx context.Context, method, kind, name, query string, body []byte, header ...string) (*http.Response, error) {
	u := m.base + "/" + kind + "/" + escape(name) + query
	r, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := m.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: memory at %s: %v", ErrAway, m.where, err)
	}
	if a.StatusCode < 300 {
		return a, nil
	}
	defer a.Body.Close() // a refusal: nothing can be lost
	why, _ := io.ReadAll(io.LimitReader(a.Body, 1<<10))
	text := strings.TrimSpace(string(why))
	switch {
	case a.StatusCode == http.StatusNotFound:
		return nil, fs.ErrNotExist
	case a.StatusCode == http.StatusPreconditionFailed:
		return nil, fs.ErrExist
	case a.StatusCode == http.StatusInsufficientStorage:
		return nil, fmt.Errorf("memory at %s is full: %s: give kintsugi memory a larger --limit: %w", m.where, text, syscall.ENOSPC)
	case a.StatusCode == http.StatusBadRequest && strings.Contains(text, "HTTPS server"):
		return nil, fmt.Errorf("memory at %s speaks TLS: use --tls here too", m.where)
	case a.StatusCode >= 500:
		return nil, fmt.Errorf("%w: memory at %s: %s %s", ErrAway, m.where, a.Status, text)
	}
	return nil, fmt.Errorf("memory at %s: %s %s", m.where, a.Status, text)
}

// escape converts a name to the path of a URL.
func escape(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// say is do for requests whose answers have no content.
func (m *Memory) say(ctx context.Context, method, kind, name, query string, body []byte) error {
	a, err := m.do(ctx, method, kind, name, query, body)
	if err != nil {
		return err
	}
	return a.Body.Close()
}

// Create implements Store.
func (m *Memory) Create(ctx context.Context, name string, content []byte) error {
	return m.say(ctx, http.MethodPut, "objects", name, "", content)
}

// Upload implements Store.
func (m *Memory) Upload(ctx context.Context, name string) (Upload, error) {
	a, err := m.do(ctx, http.MethodPost, "uploads", "", "", nil)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close() // opened for reading only: nothing can be lost
	id, err := io.ReadAll(io.LimitReader(a.Body, 32))
	if err != nil {
		return nil, fmt.Errorf("%w: memory at %s: %v", ErrAway, m.where, err)
	}
	return &memoryUpload{m: m, name: name, id: string(id)}, nil
}

type memoryUpload struct {
	m        *Memory
	name, id string
}

func (u *memoryUpload) Part(ctx context.Context, number int, content []byte) error {
	return u.m.say(ctx, http.MethodPut, "uploads", u.id+"/"+strconv.Itoa(number), "", content)
}

func (u *memoryUpload) Complete(ctx context.Context) error {
	return u.m.say(ctx, http.MethodPost, "uploads", u.id, "?name="+url.QueryEscape(u.name), nil)
}

func (u *memoryUpload) Abort(ctx context.Context) error {
	return u.m.say(ctx, http.MethodDelete, "uploads", u.id, "", nil)
}

// Read implements Store.
func (m *Memory) Read(ctx context.Context, name string, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	a, err := m.do(ctx, http.MethodGet, "objects", name, "", nil, "Range", span(offset, len(p)))
	if err != nil {
		return err
	}
	defer a.Body.Close() // opened for reading only: nothing can be lost
	return fill("memory at "+m.where, name, p, a.Body, offset, a.Header.Get("Content-Range"))
}

// Begin implements Store.
func (m *Memory) Begin(ctx context.Context, name string, p []byte) (int64, error) {
	a, err := m.do(ctx, http.MethodGet, "objects", name, "", nil, "Range", span(0, len(p)))
	if err != nil {
		return 0, err
	}
	defer a.Body.Close() // opened for reading only: nothing can be lost
	return begin("memory at "+m.where, name, p, a.Body, a.ContentLength, a.Header.Get("Content-Range"))
}

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, name string) (int64, error) {
	a, err := m.do(ctx, http.MethodHead, "objects", name, "", nil)
	if err != nil {
		return 0, err
	}
	if a.ContentLength < 0 {
		return 0, errors.Join(lengthless("memory at "+m.where, name), a.Body.Close())
	}
	return a.ContentLength, a.Body.Close()
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix string) (names []string, err error) {
	a, err := m.do(ctx, http.MethodGet, "names", prefix, "", nil)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close() // opened for reading only: nothing can be lost
	if err := json.NewDecoder(a.Body).Decode(&names); err != nil {
		return nil, fmt.Errorf("%w: memory at %s: a list broke off: %v", ErrAway, m.where, err)
	}
	return names, nil
}

// Copy implements Store.
func (m *Memory) Copy(ctx context.Context, from, to string) error {
	return m.say(ctx, http.MethodPut, "objects", to, "?from="+url.QueryEscape(from), nil)
}

// Remove implements Store.
func (m *Memory) Remove(ctx context.Context, name string) error {
	return m.say(ctx, http.MethodDelete, "objects", name, "", nil)
}
