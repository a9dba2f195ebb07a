package mtls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/kintsugi-ml/kintsugi"
)

// order makes certificates of places in a folder, valid for a day from the given time.
func order(t *testing.T, dir, domain string, from time.Time, hosts []string, places ...string) {
	t.Helper()
	o := Order{Hosts: hosts, Now: from, Life: 24 * time.Hour}
	for _, p := range places {
		n, err := ParsePlace(p)
		if err != nil {
			t.Fatal(err)
		}
		n.Domain = domain
		o.Names = append(o.Names, n)
	}
	if _, err := Make(dir, o); err != nil {
		t.Fatal(err)
	}
}

// said is a log that a test reads.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func open(t *testing.T, dir, place string) (*Credentials, *said) {
	t.Helper()
	n, err := ParsePlace(place)
	if err != nil {
		t.Fatal(err)
	}
	log := &said{}
	c, err := Open(dir, n.Role, n.Index, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return c, log
}

const word = "longer than what goes before a record"

// meet connects two sides by TCP. Each does its part of a handshake, and then the server sends a
// word that the client receives. It returns the errors of both sides.
func meet(t *testing.T, client, server func(net.Conn) (net.Conn, error)) (clientErr, serverErr error) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	served := make(chan error, 1)
	go func() {
		raw, err := lis.Accept()
		if err != nil {
			served <- err
			return
		}
		defer raw.Close()
		conn, err := server(raw)
		if err == nil {
			_, err = io.WriteString(conn, word)
		}
		served <- err
	}()
	raw, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn, clientErr := client(raw)
	if clientErr == nil {
		_, clientErr = io.ReadFull(conn, make([]byte, len(word)))
	}
	_ = raw.Close() // a server may wait for a message that will not come
	return clientErr, <-served
}

// calls is the client's part, for a host.
func calls(ctx context.Context, c *Credentials, want Whom, host string) func(net.Conn) (net.Conn, error) {
	return func(raw net.Conn) (net.Conn, error) {
		conn, _, err := c.Client(want).ClientHandshake(ctx, net.JoinHostPort(host, "7070"), raw)
		return conn, err
	}
}

// listens is the server's part.
func listens(c *Credentials, may ...Role) func(net.Conn) (net.Conn, error) {
	return func(raw net.Conn) (net.Conn, error) {
		conn, _, err := c.Callers(may...).ServerHandshake(raw)
		return conn, err
	}
}

func bare(raw net.Conn) (net.Conn, error) { return raw, nil }

// stock is a side that shows a certificate from a folder and trusts everybody, as another program,
// or one with another clock, may do.
func stock(t *testing.T, folder string, server bool) func(net.Conn) (net.Conn, error) {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"}}
	if folder != "" {
		cert, err := tls.LoadX509KeyPair(filepath.Join(folder, CertificateFile), filepath.Join(folder, KeyFile))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return func(raw net.Conn) (net.Conn, error) {
		conn := tls.Client(raw, cfg)
		if server {
			conn = tls.Server(raw, cfg)
		}
		return conn, conn.Handshake()
	}
}

// Only the intended peers are trusted. A side that is not trusted, and a side that does not trust
// the other, reports why and what to do.
func TestOnlyThoseWhoAreMeantAreBelieved(t *testing.T) {
	now := time.Now()
	dir, old, other, apart := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	order(t, dir, "run", now.Add(-48*time.Hour), nil, "worker", "server") // the authority is as old as that
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	order(t, dir, "run", now, []string{"node-a", "10.0.0.5"}, "worker", "server", "server/3", "etcd", "coordinator")
	order(t, other, "run", now, nil, "worker", "server")
	if err := os.CopyFS(apart, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	order(t, apart, "elsewhere", now, nil, "worker", "server")

	worker, workerLog := open(t, dir, "worker")
	server, serverLog := open(t, dir, "server")
	third, _ := open(t, dir, "server/3")
	etcd, _ := open(t, dir, "etcd")
	stranger, _ := open(t, other, "worker")
	strange, _ := open(t, other, "server")
	distant, _ := open(t, apart, "worker")
	far, _ := open(t, apart, "server")
	first, some := Whom{Role: Server, Index: 0}, Whom{Role: Server, Index: Any}
	ctx := t.Context()
	for _, c := range []struct {
		name           string
		client, server func(net.Conn) (net.Conn, error)
		clientSays     string // part of the message; empty: nothing is wrong
		serverSays     string
	}{
		{"an address", calls(ctx, worker, first, "127.0.0.1"), listens(server, Worker), "", ""},
		{"an address of six", calls(ctx, worker, first, "::1"), listens(server, Worker), "", ""},
		{"another address", calls(ctx, worker, some, "10.0.0.5"), listens(server, Worker), "", ""},
		{"a name", calls(ctx, worker, first, "node-a"), listens(server, Worker, Server), "", ""},
		{"a host that the certificate does not name", calls(ctx, worker, first, "10.0.0.6"), listens(server, Worker),
			"server/0 at 10.0.0.6:7070: its certificate is for other hosts: make one with kintsugi certs --hosts 10.0.0.6", "refuses the certificate of this process"},
		{"the very place, wherever it is", calls(ctx, worker, Whom{Role: Server, Index: 3}, "10.0.0.6"), listens(third, Worker), "", ""},
		{"another place", calls(ctx, worker, first, "127.0.0.1"), listens(third, Worker), "it has the certificate of server/3, where server/0 is wanted", "refuses"},
		{"a role that nobody has asked for", calls(ctx, worker, first, "127.0.0.1"), listens(etcd, Worker), "it has the certificate of etcd, where server/0 is wanted", "refuses"},
		{"a role that may not", calls(ctx, worker, some, "127.0.0.1"), listens(server, Server, Coordinator),
			"it refuses the certificate of this process, and says why in its log", "it has the certificate of worker, and server listens to server, coordinator only"},
		{"a caller of another authority", calls(ctx, stranger, some, "127.0.0.1"), listens(server, Worker), "its certificate is not signed by an authority in ca.pem", "refuses"},
		{"a caller whose authority is not believed", stock(t, filepath.Join(other, "worker"), false), listens(server, Worker), "unknown certificate authority", "its certificate is not signed by an authority in ca.pem"},
		{"a server of another authority", calls(ctx, worker, some, "127.0.0.1"), listens(strange, Worker), "its certificate is not signed by an authority in ca.pem: use certificates of one authority", "refuses"},
		{"a caller of another domain", calls(ctx, distant, some, "127.0.0.1"), listens(server, Worker), "of the domain run, and that of this process of elsewhere", "refuses"},
		{"a server of another domain", calls(ctx, worker, some, "127.0.0.1"), listens(far, Worker), "of the domain elsewhere, and that of this process of run", "refuses"},
		{"a caller that has expired", stock(t, filepath.Join(old, "worker"), false), listens(server, Worker), "expired certificate", "renew it, or check the clocks"},
		{"a server that has expired", calls(ctx, worker, some, "127.0.0.1"), stock(t, filepath.Join(old, "server"), true), "renew it, or check the clocks", "bad certificate"},
		{"a server with the certificate of a worker", calls(ctx, worker, some, "127.0.0.1"), stock(t, filepath.Join(dir, "worker"), true), "is not for this usage", "bad certificate"},
		{"a caller without a certificate", stock(t, "", false), listens(server, Worker), "certificate required", "it shows no certificate: start it with --tls"},
		{"a caller without TLS", func(raw net.Conn) (net.Conn, error) {
			_, err := io.WriteString(raw, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
			return raw, err
		}, listens(server, Worker), "EOF", "it does not speak TLS, and this process does: start both with --tls"},
		{"a server without TLS", calls(ctx, worker, some, "127.0.0.1"), bare, "it does not speak TLS, and this process does: start both with --tls", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			clientErr, serverErr := meet(t, c.client, c.server)
			for side, x := range map[string]struct {
				err  error
				want string
			}{"client": {clientErr, c.clientSays}, "server": {serverErr, c.serverSays}} {
				if good := x.err == nil; good != (x.want == "") || !good && !strings.Contains(x.err.Error(), x.want) {
					t.Errorf("the %s says %v; want %q", side, x.err, x.want)
				}
			}
		})
	}
	for log, want := range map[*said][]string{
		workerLog: {"no connection", "make one with kintsugi certs --hosts 10.0.0.6"},
		serverLog: {"a connection was refused", "from=127.0.0.1", "it does not speak TLS"},
	} {
		for _, text := range want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("the log says nothing of %q:\n%s", text, log)
			}
		}
	}
	lines := strings.Count(serverLog.String(), "\n")
	for range 3 {
		if _, err := meet(t, stock(t, "", false), listens(server, Worker)); err == nil {
			t.Error("a caller without a certificate was let in")
		}
	}
	if again := strings.Count(serverLog.String(), "\n"); again != lines {
		t.Errorf("what is tried again and again is said again and again:\n%s", serverLog)
	}
}

// The same holds without gRPC: for a listener and a dialler as net/http uses them.
func TestConnectionsWithoutGRPCAreTheSame(t *testing.T) {
	dir := t.TempDir()
	order(t, dir, "run", time.Now(), nil, "worker", "server", "memory")
	memory, _ := open(t, dir, "memory")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, word) })}
	served := make(chan error, 1)
	go func() { served <- s.Serve(tls.NewListener(lis, memory.ServerConfig(Server))) }()
	for _, c := range []struct {
		place string
		want  Whom
		good  bool
	}{{"server", Whom{Role: Memory, Index: Any}, true}, {"worker", Whom{Role: Memory, Index: Any}, false}, {"server", Whom{Role: Etcd, Index: Any}, false}} {
		who, _ := open(t, dir, c.place)
		transport := &http.Transport{DialTLSContext: who.DialContext(c.want)}
		answer, err := (&http.Client{Transport: transport}).Get("https://" + lis.Addr().String())
		if good := err == nil; good != c.good {
			t.Errorf("%s asks %v: %v", c.place, c.want, err)
		}
		if err == nil {
			if said, err := io.ReadAll(answer.Body); err != nil || string(said) != word {
				t.Errorf("it hears %q, %v", said, err)
			}
			_ = answer.Body.Close() // it has been read
		}
		transport.CloseIdleConnections()
	}
	_ = s.Close() // nobody uses it any more
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// An etcd that does not belong to a run is trusted by its host's certificate, and only if that is
// asked for.
func TestACertificateWithoutARoleIsThatOfItsHost(t *testing.T) {
	dir := t.TempDir()
	order(t, dir, "run", time.Now(), nil, "worker", "etcd")
	worker, _ := open(t, dir, "worker")
	etcd, _ := open(t, dir, "etcd")
	nameless := *etcd.now.cert.Leaf
	nameless.URIs = nil
	chain := []*x509.Certificate{&nameless}
	for _, c := range []struct {
		host string
		want Whom
		good bool
	}{
		{"localhost", Whom{Role: Etcd, Index: Any, Nameless: true}, true},
		{"10.0.0.9", Whom{Role: Etcd, Index: Any, Nameless: true}, false},
		{"localhost", Whom{Role: Etcd, Index: Any}, false},
	} {
		// The signature is not checked again, since the bytes are those of the same certificate.
		if err := worker.now.dialled(chain, c.host, c.want, time.Now()); (err == nil) != c.good {
			t.Errorf("%v at %s: %v", c.want, c.host, err)
		}
	}
	if _, err := worker.now.caller(&nameless, Roles()); err == nil {
		t.Error("a caller without a role is let in")
	}
}

func TestPlacesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Name{
		"operator": {Role: Operator, Index: Any}, "worker": {Role: Worker, Index: Any}, "worker/0": {Role: Worker}, "server/12": {Role: Server, Index: 12},
	} {
		got, err := ParsePlace(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
		got.Domain = "run"
		back, err := nameOf(&x509.Certificate{URIs: []*url.URL{{Scheme: "https", Host: "unrelated"}, got.URI()}})
		if err != nil || back != got {
			t.Errorf("%v comes back as %v, %v", got.URI(), back, err)
		}
	}
	for _, text := range []string{"", "admin", "worker/", "worker/-1", "worker/01", "worker/x", "worker/1/2", "etcd/0", "Worker"} {
		if _, err := ParsePlace(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, uris := range [][]string{
		nil, {"https://run/kintsugi/worker"}, {"spiffe://run/worker"}, {"spiffe://run/kintsugi/admin"}, {"spiffe:///kintsugi/worker"},
		{"spiffe://run:1/kintsugi/worker"}, {"spiffe://me@run/kintsugi/worker"}, {"spiffe://run/kintsugi/worker?a=b"},
		{"spiffe://run/kintsugi/worker", "spiffe://run/kintsugi/server"},
	} {
		cert := &x509.Certificate{}
		for _, u := range uris {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, parsed)
		}
		if n, err := nameOf(cert); err == nil {
			t.Errorf("%v name %v", uris, n)
		}
	}
}

// Files are replaced one after the other, and files that do not belong together are not used. Later
// connections use the new certificate.
func TestCredentialsAreReadAgainWhenTheirFilesChange(t *testing.T) {
	dir, next := t.TempDir(), t.TempDir()
	order(t, dir, "run", time.Now(), nil, "worker", "server")
	worker, _ := open(t, dir, "worker")
	server, log := open(t, dir, "server")
	serial := func() string {
		t.Helper()
		var shown string
		client := func(raw net.Conn) (net.Conn, error) {
			conn, info, err := worker.Client(Whom{Role: Server, Index: Any}).ClientHandshake(t.Context(), "localhost:1", raw)
			if err == nil {
				shown = info.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber.String()
			}
			return conn, err
		}
		if clientErr, serverErr := meet(t, client, listens(server, Worker)); clientErr != nil || serverErr != nil {
			t.Fatal(clientErr, serverErr)
		}
		return shown
	}
	first := serial()
	if err := os.CopyFS(next, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	order(t, next, "run", time.Now(), nil, "server")
	move := func(name string) {
		t.Helper()
		if err := os.Rename(filepath.Join(next, "server", name), filepath.Join(dir, "server", name)); err != nil {
			t.Fatal(err)
		}
	}
	move(CertificateFile)
	if got := serial(); got != first {
		t.Error("a certificate is shown without its key")
	}
	move(KeyFile)
	second := serial()
	if second == first || !strings.Contains(log.String(), "read new credentials") {
		t.Errorf("the certificate was replaced, and the server shows the old one:\n%s", log)
	}
	if err := os.Remove(filepath.Join(dir, "server", KeyFile)); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != second || !strings.Contains(log.String(), "cannot be read again") {
		t.Errorf("the key is gone, and the server does not go on with what it has:\n%s", log)
	}
}

// An authority is replaced as certificates are: first both are trusted everywhere, then
// certificates of the new one are made.
func TestAnAuthorityIsReplacedWhileBothAreBelieved(t *testing.T) {
	dir, next := t.TempDir(), t.TempDir()
	order(t, dir, "run", time.Now(), nil, "worker", "server")
	order(t, next, "run", time.Now(), nil, "worker", "server")
	worker, _ := open(t, dir, "worker")
	server, _ := open(t, dir, "server")
	read := func(name ...string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(name...))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write := func(b []byte, name ...string) {
		t.Helper()
		if err := replace(filepath.Join(name...), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		if clientErr, serverErr := meet(t, calls(t.Context(), worker, Whom{Role: Server, Index: Any}, "localhost"), listens(server, Worker)); clientErr != nil || serverErr != nil {
			t.Errorf("%s: %v, %v", when, clientErr, serverErr)
		}
	}
	check("with the old one")
	for _, role := range []string{"server", "worker"} {
		write(append(read(dir, role, AuthorityFile), read(next, AuthorityFile)...), dir, role, AuthorityFile)
		check("the " + role + " believes both")
	}
	for _, role := range []string{"worker", "server"} {
		write(read(next, role, KeyFile), dir, role, KeyFile)
		write(read(next, role, CertificateFile), dir, role, CertificateFile)
		check("the " + role + " has a certificate of the new one")
	}
	for _, role := range []string{"worker", "server"} {
		write(read(next, AuthorityFile), dir, role, AuthorityFile)
		check("the " + role + " has forgotten the old one")
	}
}

// A process that may take any place has use for a certificate of all places alone: others would refuse
// it in the places but one.
func TestWhoTakesAnyPlaceHasACertificateForAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	order(t, dir, "run", time.Now(), nil, "server", "worker/1")
	if _, err := Open(dir, Server, Every, nil); err != nil {
		t.Error(err)
	}
	if _, err := Open(dir, Worker, Every, nil); err == nil {
		t.Error("a worker of any place has found a certificate")
	}
	if _, err := Open(filepath.Join(dir, "worker/1"), Worker, Every, nil); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "the certificate of worker/1 alone") {
		t.Errorf("with the certificate of one place the error is %v", err)
	}
	if _, err := Open(filepath.Join(dir, "worker/1"), Server, Every, nil); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "and this process is server: name") {
		t.Errorf("with the certificate of another role the error is %v", err)
	}
}

func TestWhatIsWrongWithAFolderIsSaid(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(dir string) error // the folder has certificates of a server and of worker/1
		place string
		want  string
	}{
		{"nothing", func(string) error { return nil }, "server/7", ""},
		{"nothing, and the place has one", func(string) error { return nil }, "worker/1", ""},
		{"no folder", os.RemoveAll, "server", "make one with kintsugi certs --out"},
		{"no certificate for the role", func(string) error { return nil }, "etcd", "make one with kintsugi certs --out"},
		{"no authority", func(dir string) error { return os.Remove(filepath.Join(dir, "server", AuthorityFile)) }, "server", AuthorityFile},
		{"no key", func(dir string) error { return os.Remove(filepath.Join(dir, "server", KeyFile)) }, "server", KeyFile},
		{"the key of another one", func(dir string) error {
			return os.Rename(filepath.Join(dir, "worker/1", KeyFile), filepath.Join(dir, "server", KeyFile))
		}, "server", "private key does not match"},
		{"the certificate of another one", func(dir string) error {
			return os.Rename(filepath.Join(dir, "worker/1"), filepath.Join(dir, "server/1"))
		}, "server/1", "cert.pem is the certificate of worker/1, and this process is server/1"},
		{"no PEM", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "server", AuthorityFile), []byte("?"), 0o600)
		}, "server", "holds no certificate in PEM"},
		{"another authority", func(dir string) error {
			order(t, filepath.Join(dir, "other"), "run", time.Now(), nil, "etcd")
			return os.Rename(filepath.Join(dir, "other", AuthorityFile), filepath.Join(dir, "server", AuthorityFile))
		}, "server", "the certificate is not signed by an authority in ca.pem"},
		{"an old certificate", func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			order(t, dir, "run", time.Now().Add(-25*time.Hour), nil, "server")
			return nil
		}, "server", "has expired on"},
		{"a new certificate", func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			order(t, dir, "run", time.Now().Add(2*time.Hour), nil, "server")
			return nil
		}, "server", "check the clock of this host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "certs")
			order(t, dir, "run", time.Now(), nil, "server", "worker/1")
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			n, err := ParsePlace(c.place)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Open(dir, n.Role, n.Index, nil); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// When a tenth of a certificate's life is left, the log says so, even if nobody connects, and so it
// does when it has expired.
func TestACertificateThatIsAboutToExpireIsSpokenOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		order(t, dir, "run", time.Now(), nil, "server") // 25 hours, since certificates begin an hour early because clocks differ
		c, log := open(t, dir, "server")
		ctx, cancel := context.WithCancel(t.Context())
		go c.Watch(ctx)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		if log.String() != "" {
			t.Errorf("after 20 hours the log says\n%s", log)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if !strings.Contains(log.String(), "expires on") {
			t.Errorf("after 23 hours the log says\n%s", log)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if !strings.Contains(log.String(), "has expired on") {
			t.Errorf("after 25 hours the log says\n%s", log)
		}
		cancel()
		synctest.Wait()
	})
}

func TestOrdersThatCannotBeMadeAreRefused(t *testing.T) {
	good := Order{Names: []Name{{Domain: "run", Role: Server, Index: Any}}, Hosts: []string{"10.0.0.5", "fe80::1", "node-a.example.org"}, Now: time.Now(), Life: time.Hour}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(*Order){
		"no domain":        func(o *Order) { o.Names = []Name{{Role: Server, Index: Any}} },
		"a large domain":   func(o *Order) { o.Names = []Name{{Domain: "Run", Role: Server, Index: Any}} },
		"a host with port": func(o *Order) { o.Hosts = []string{"node-a:7070"} },
		"a URL":            func(o *Order) { o.Hosts = []string{"https://node-a"} },
		"no host":          func(o *Order) { o.Hosts = []string{""} },
		"no life":          func(o *Order) { o.Life = 0 },
		"eternity":         func(o *Order) { o.Life = 100 * 365 * 24 * time.Hour },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Check(); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Only their owner can read keys, and an authority whose key is elsewhere makes no certificates.
func TestKeysAreTheirOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	order(t, dir, "run", time.Now(), nil, "server", "worker/3")
	for file, want := range map[string]os.FileMode{
		AuthorityKeyFile: 0o600, AuthorityFile: 0o644, "server/key.pem": 0o600, "worker/3/key.pem": 0o600, "worker/3/cert.pem": 0o644, "worker/3/ca.pem": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, AuthorityKeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, Order{Names: []Name{{Domain: "run", Role: Server, Index: Any}}, Now: time.Now(), Life: time.Hour}); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("certificates are made without the key: %v", err)
	}
}

// An authority that cannot sign makes no certificate, and it is said which of its files is wrong.
func TestAnAuthorityThatCannotSignIsRefused(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	order(t, dir, "run", time.Now(), nil, "server")
	order(t, other, "run", time.Now(), nil, "server")
	read := func(folder, name string) string {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	cert, key := read(dir, AuthorityFile), read(dir, AuthorityKeyFile)
	for what, c := range map[string]struct{ cert, key, says string }{
		"the key of another":          {cert, read(other, AuthorityKeyFile), AuthorityKeyFile + " is not the key of the first certificate"},
		"another certificate first":   {read(other, AuthorityFile) + cert, key, "is not the key of the first certificate"},
		"a certificate without PEM":   {"x", key, "must be in PEM"},
		"a key without PEM":           {cert, "x", "must be in PEM"},
		"a certificate that is a key": {key, key, AuthorityFile + " has no certificate"},
		"a key that is a certificate": {cert, cert, AuthorityKeyFile + " has no private key in PKCS #8"},
	} {
		for name, text := range map[string]string{AuthorityFile: c.cert, AuthorityKeyFile: c.key} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		folders, err := Make(dir, Order{Names: []Name{{Domain: "run", Role: Worker, Index: Any}}, Now: time.Now(), Life: time.Hour})
		if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.says) || len(folders) > 0 {
			t.Errorf("%s: %q, %v", what, folders, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "worker")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was made: %v", what, err)
		}
	}
}
