package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// patience bounds every wait. Only a failing test uses it up.
const patience = 20 * time.Second

// service is a metadata service that answers as its cloud does, until its machine is to go.
type service struct {
	t  *testing.T
	mu sync.Mutex

	going chan struct{} // closed when the machine is to go
	token int           // aws: number of the token that is valid
	no    chan struct{} // a value for each answer that the machine stays, as far as there is room
	asked int           // number of those answers
	at    time.Time
}

func serve(t *testing.T, handle func(*service, http.ResponseWriter, *http.Request)) (*service, string) {
	s := &service{t: t, going: make(chan struct{}), no: make(chan struct{}, 16), at: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(s, w, r) }))
	t.Cleanup(h.Close)
	return s, h.URL
}

func (s *service) goes() bool {
	select {
	case <-s.going:
		return true
	default:
		s.says()
		return false
	}
}

// says notes that an answer was "no".
func (s *service) says() {
	s.asked++
	select {
	case s.no <- struct{}{}:
	default:
	}
}

func amazon(s *service, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			http.Error(w, "no time to live", http.StatusBadRequest)
			return
		}
		s.token++
		fmt.Fprintf(w, "token-%d", s.token)
	case r.Header.Get("X-aws-ec2-metadata-token") != fmt.Sprintf("token-%d", s.token):
		http.Error(w, "no session", http.StatusUnauthorized)
	case r.URL.Path != "/latest/meta-data/spot/instance-action":
		s.t.Errorf("request for %s", r.URL)
	case !s.goes():
		http.NotFound(w, r)
		if s.asked == 2 {
			s.token++ // the token expires without a message
		}
	default:
		fmt.Fprintf(w, `{"action": "terminate", "time": %q}`, s.at.Format(time.RFC3339))
	}
}

func google(s *service, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/computeMetadata/v1/instance/preempted" || r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "not like this", http.StatusForbidden)
		return
	}
	w.Header().Set("ETag", "1")
	q := r.URL.Query()
	if q.Get("wait_for_change") == "true" && q.Get("last_etag") == "1" {
		s.mu.Lock()
		s.says()
		s.mu.Unlock()
		select {
		case <-s.going:
			fmt.Fprintln(w, "TRUE")
		case <-r.Context().Done():
		}
		return
	}
	fmt.Fprintln(w, "FALSE")
}

func microsoft(s *service, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == "" {
		http.Error(w, "not like this", http.StatusBadRequest)
		return
	}
	switch r.URL.Path {
	case "/metadata/instance/compute/name":
		fmt.Fprint(w, "node7")
	case "/metadata/scheduledevents":
		own := ""
		if s.goes() {
			own = fmt.Sprintf(`, {"EventId": "b", "EventType": "Preempt", "Resources": ["node6", "node7"], "EventStatus": "Scheduled", "NotBefore": %q}`, s.at.Format(http.TimeFormat))
		}
		fmt.Fprintf(w, `{"DocumentIncarnation": 2, "Events": [
			{"EventId": "a", "EventType": "Preempt", "Resources": ["node9"], "EventStatus": "Scheduled", "NotBefore": ""},
			{"EventId": "c", "EventType": "Freeze", "Resources": ["node7"], "EventStatus": "Scheduled", "NotBefore": ""}%s]}`, own)
	default:
		s.t.Errorf("request for %s", r.URL)
	}
}

func next(t *testing.T, notices <-chan Notice) Notice {
	t.Helper()
	select {
	case n := <-notices:
		return n
	case <-time.After(patience):
		t.Fatal("no notice came")
	}
	return Notice{}
}

// Each cloud answers a few times that the machine stays, and then that it is to go.
func TestEachCloudIsAskedAsItWantsToBe(t *testing.T) {
	for _, c := range []struct {
		source, reason string
		handle         func(*service, http.ResponseWriter, *http.Request)
		dated          bool
		asks           int // questions before it is to go
		firmware       string
	}{
		{"aws", "aws: terminate", amazon, true, 4, "Amazon EC2 m5.large"},
		{"gcp", "gcp: preempted", google, false, 1, "Google Google Compute Engine"},
		{"azure", "azure: Preempt", microsoft, true, 4, "Microsoft Corporation Virtual Machine " + azureTag},
	} {
		for _, source := range []string{c.source, "auto"} {
			s, endpoint := serve(t, c.handle)
			ctx, cancel := context.WithCancel(t.Context())
			notices := Watch(ctx, Config{Source: source, Endpoint: endpoint, Every: time.Millisecond, Firmware: func() string { return c.firmware }})
			for i := range c.asks {
				select {
				case <-s.no:
				case <-time.After(patience):
					t.Fatalf("%s was asked %d times", c.source, i)
				}
			}
			if len(notices) > 0 {
				t.Errorf("%s: %+v before anything happened", c.source, <-notices)
			}
			before := time.Now()
			close(s.going)
			n := next(t, notices)
			if n.Reason != c.reason || !n.Machine {
				t.Errorf("%s: %+v; want %q of the machine", c.source, n, c.reason)
			}
			if c.dated && !n.Deadline.Equal(s.at) || !c.dated && (n.Deadline.Before(before.Add(gcpWarning)) || n.Deadline.After(time.Now().Add(gcpWarning))) {
				t.Errorf("%s: deadline %v; want %v", c.source, n.Deadline, s.at)
			}
			cancel()
		}
	}
}

func TestAMachineOfNoCloudAsksNobody(t *testing.T) {
	for _, c := range []Config{{Source: "none", Firmware: func() string { return "Amazon EC2" }}, {Firmware: func() string { return "Microsoft Corporation Surface" }}, {Firmware: func() string { return "" }}} {
		if got := c.cloud(); got != nil {
			t.Errorf("%+v asks %T", c.Source, got)
		}
	}
}

// A metadata service that is away, or answers nonsense, does not end anything: it is asked again.
func TestAMetadataServiceThatIsAwayIsAskedAgain(t *testing.T) {
	answers := make(chan func(http.ResponseWriter), 3)
	answers <- func(w http.ResponseWriter) { http.Error(w, "busy", http.StatusServiceUnavailable) }
	answers <- func(w http.ResponseWriter) { fmt.Fprint(w, "node7") }
	answers <- func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"Events": [{"EventType": "Terminate", "Resources": ["node7"]}]}`)
	}
	_, endpoint := serve(t, func(_ *service, w http.ResponseWriter, _ *http.Request) { (<-answers)(w) })
	n := next(t, Watch(t.Context(), Config{Source: "azure", Endpoint: endpoint, Every: time.Millisecond, Warning: time.Hour}))
	if n.Reason != "azure: Terminate" || time.Until(n.Deadline) < 50*time.Minute {
		t.Errorf("%+v; want the end of the machine in an hour", n)
	}
}

func TestSIGTERMIsANoticeOfTheProcess(t *testing.T) {
	notices := Watch(t.Context(), Config{Source: "none", Warning: time.Minute})
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if n := next(t, notices); n.Reason != "SIGTERM" || n.Machine || time.Until(n.Deadline) > time.Minute || time.Until(n.Deadline) < 30*time.Second {
			t.Errorf("%+v", n)
		}
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []Config{{Source: "cloud"}, {Warning: -1}, {Endpoint: "nonsense"}, {Endpoint: "http://"}, {Endpoint: "http://[::1"}, {Endpoint: "ftp://host"}} {
		if err := c.Check(); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []Config{{}, {Endpoint: "http://127.0.0.1:1/"}, {Endpoint: "https://metadata"}} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// answers serves one answer after the other, and the last one for ever.
func answers(t *testing.T, list ...func(http.ResponseWriter, *http.Request)) string {
	var mu sync.Mutex
	_, endpoint := serve(t, func(_ *service, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		list[0](w, r)
		if len(list) > 1 {
			list = list[1:]
		}
	})
	return endpoint
}

func says(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// An answer that is not a token, such as the page of a portal, is not used as one for the rest of
// the run.
func TestATokenThatIsNoneIsAskedForAgain(t *testing.T) {
	endpoint := answers(t, says("<html>\nsign in</html>"), says("token-1"), says(`{"action": "stop"}`))
	n := next(t, Watch(t.Context(), Config{Source: "aws", Endpoint: endpoint, Every: time.Millisecond, Warning: time.Hour}))
	if n.Reason != "aws: stop" {
		t.Errorf("%+v", n)
	}
}

func TestAnAnswerOfAnotherServiceIsNoNotice(t *testing.T) {
	for _, c := range []struct {
		source string
		list   []func(http.ResponseWriter, *http.Request)
	}{
		{"aws", []func(http.ResponseWriter, *http.Request){says("token-1"), says("{}")}},
		{"aws", []func(http.ResponseWriter, *http.Request){says("token-1"), says("null")}},
		{"gcp", []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", "1")
			fmt.Fprint(w, "<html>sign in</html>")
		}}},
		{"azure", []func(http.ResponseWriter, *http.Request){says(" ")}},
		{"azure", []func(http.ResponseWriter, *http.Request){says("node7"), says("{")}},
	} {
		m := &metadata{endpoint: answers(t, c.list...), warning: time.Minute, client: client()}
		cfg := Config{Source: c.source}
		if n, err := cfg.cloud().ask(t.Context(), m); n != nil || err == nil {
			t.Errorf("%s: %+v, %v; want an error, or nobody learns that the service does not speak", c.source, n, err)
		}
	}
}

// Redirects lead elsewhere, and no token may go there.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := answers(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s %s with %v", r.Method, r.URL, r.Header) })
	for _, source := range []string{"aws", "gcp", "azure"} {
		m := &metadata{endpoint: answers(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				fmt.Fprint(w, "token-1")
				return
			}
			http.Redirect(w, r, other+"/page", http.StatusTemporaryRedirect)
		}), client: client()}
		cfg := Config{Source: source}
		if n, err := cfg.cloud().ask(t.Context(), m); n != nil || err == nil {
			t.Errorf("%s: %+v, %v", source, n, err)
		}
	}
}

// Clocks differ. A notice whose time is missing or past is still a notice.
func TestANoticeWithoutATimeToComeHasTheUsualOne(t *testing.T) {
	past := time.Now().Add(-time.Hour).UTC()
	for _, c := range []struct {
		source string
		list   []func(http.ResponseWriter, *http.Request)
	}{
		{"aws", []func(http.ResponseWriter, *http.Request){says("token-1"), says(`{"action": "terminate", "time": "` + past.Format(time.RFC3339) + `"}`)}},
		{"aws", []func(http.ResponseWriter, *http.Request){says("token-1"), says(`{"action": "terminate", "time": "soon"}`)}},
		{"azure", []func(http.ResponseWriter, *http.Request){says("node7"),
			says(`{"Events": [{"EventType": "Preempt", "Resources": ["node7"], "NotBefore": "` + past.Format(http.TimeFormat) + `"}]}`)}},
	} {
		n := next(t, Watch(t.Context(), Config{Source: c.source, Endpoint: answers(t, c.list...), Every: time.Millisecond, Warning: time.Hour}))
		if left := time.Until(n.Deadline); left < 50*time.Minute || left > time.Hour {
			t.Errorf("%+v, in %v; want an hour", n, left)
		}
	}
}

// Of several events the earliest counts, since the others may never happen.
func TestOfSeveralEventsTheFirstToComeCounts(t *testing.T) {
	at := func(in time.Duration) string { return time.Now().Add(in).UTC().Format(http.TimeFormat) }
	endpoint := answers(t, says("node7"), says(fmt.Sprintf(`{"Events": [
		{"EventType": "Reboot", "Resources": ["node7"], "NotBefore": %q}, {"EventType": "Preempt", "Resources": ["node7"], "NotBefore": %q}]}`, at(time.Hour), at(time.Minute))))
	if n := next(t, Watch(t.Context(), Config{Source: "azure", Endpoint: endpoint})); n.Reason != "azure: Preempt" {
		t.Errorf("%+v", n)
	}
}

// An error that names another port each time is the same error.
func TestAnErrorIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	reset := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	endpoint := answers(t, reset, reset, says("node7"), says(`{"Events": [{"EventType": "Preempt", "Resources": ["node7"]}]}`))
	next(t, Watch(t.Context(), Config{Source: "azure", Endpoint: endpoint, Every: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))}))
	if n := strings.Count(log.String(), "asked again"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
