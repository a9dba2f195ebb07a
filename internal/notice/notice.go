package notice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Notice says that this process is about to be terminated.
type Notice struct {
	Reason   string    // in words, such as "SIGTERM"
	Deadline time.Time // after it the process may be gone
	Machine  bool      // the machine goes, with its memory; false: only the process
}

// Config configures Watch. Zero fields mean the defaults.
type Config struct {
	// Source is the cloud to ask: one of Sources. Default: auto, the cloud that the machine's
	// firmware names.
	Source string

	// Endpoint is the metadata service. Default: http://169.254.169.254, which all clouds use.
	Endpoint string

	// Warning is the assumed time between a notice without a deadline and the end. Default: 25 s, a
	// little less than the usual 30 s.
	Warning time.Duration

	// Every is the pause between two requests. Default: the cloud's recommendation. After an error
	// it is at least one second.
	Every time.Duration

	// Firmware returns the manufacturer of the machine. Default: it reads /sys/class/dmi/id.
	Firmware func() string

	Log *slog.Logger // nil: slog.Default
}

// DefaultWarning is the default of Config.Warning.
const DefaultWarning = 25 * time.Second

// Sources lists the values of Config.Source.
func Sources() []string { return []string{"auto", "aws", "gcp", "azure", "none"} }

// Check returns an ErrUsage if the source is unknown, the warning negative, or the endpoint no URL.
func (c Config) Check() error {
	if !slices.Contains(Sources(), c.source()) {
		return fmt.Errorf("%w: --notice %q is unknown; use %s", kintsugi.ErrUsage, c.Source, strings.Join(Sources(), ", "))
	}
	if c.Warning < 0 {
		return fmt.Errorf("%w: --warning %v must be positive", kintsugi.ErrUsage, c.Warning)
	}
	if u, err := url.Parse(c.Endpoint); c.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%w: --notice-endpoint %q: write a URL such as http://169.254.169.254", kintsugi.ErrUsage, c.Endpoint)
	}
	return nil
}

func (c Config) source() string {
	if c.Source == "" {
		return "auto"
	}
	return c.Source
}

// Watch returns a channel that delivers each SIGTERM that this process receives until ctx ends, and
// the first notice of the cloud. SIGTERM no longer ends the process. The channel is never closed.
// It has room for two notices; further ones are dropped while it is full.
func Watch(ctx context.Context, cfg Config) <-chan Notice {
	if cfg.Warning == 0 {
		cfg.Warning = DefaultWarning
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = "http://169.254.169.254"
	}
	if cfg.Firmware == nil {
		cfg.Firmware = firmware
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	out := make(chan Notice, 2)
	tell := func(n Notice) {
		select {
		case out <- n:
		default:
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				tell(Notice{Reason: "SIGTERM", Deadline: time.Now().Add(cfg.Warning)})
			}
		}
	}()
	if cloud := cfg.cloud(); cloud != nil {
		go func() {
			if n, ok := cfg.poll(ctx, cloud); ok {
				tell(n)
			}
		}()
	}
	return out
}

// cloud returns the cloud to ask, or nil.
func (c *Config) cloud() cloud {
	source := c.source()
	if source == "auto" {
		source = sourceOf(c.Firmware())
	}
	switch source {
	case "aws":
		return &aws{}
	case "gcp":
		return &gcp{}
	case "azure":
		return &azure{}
	}
	return nil
}

// sourceOf returns the cloud whose machines report this manufacturer, or "none".
func sourceOf(maker string) string {
	switch {
	case strings.Contains(maker, "Amazon"):
		return "aws"
	case strings.Contains(maker, "Google"):
		return "gcp"
	case strings.Contains(maker, azureTag):
		return "azure"
	}
	return "none"
}

// azureTag is the asset tag of all virtual machines of Azure. The vendor, Microsoft, also makes
// other machines.
const azureTag = "7783-7084-3265-9085-8269-3286-77"

func firmware() string {
	var words []string
	for _, name := range []string{"sys_vendor", "product_name", "chassis_asset_tag"} {
		text, err := os.ReadFile("/sys/class/dmi/id/" + name)
		if err == nil {
			words = append(words, strings.TrimSpace(string(text)))
		}
	}
	return strings.Join(words, " ")
}

// cloud is the metadata service of a cloud. ask returns a notice, or nil as long as there is none.
// every returns the recommended pause between requests.
type cloud interface {
	ask(ctx context.Context, m *metadata) (*Notice, error)
	every() time.Duration
}

// poll asks until there is a notice or ctx ends. It logs an error once and goes on asking: a
// metadata service that does not answer must not stop the work.
func (c *Config) poll(ctx context.Context, from cloud) (Notice, bool) {
	m := &metadata{endpoint: strings.TrimSuffix(c.Endpoint, "/"), warning: c.Warning, client: client()}
	defer m.client.CloseIdleConnections()
	every, said := c.Every, ""
	if every == 0 {
		every = from.every()
	}
	for {
		n, err := from.ask(ctx, m)
		if n != nil {
			return *n, true
		}
		pause := every
		if err != nil {
			pause = max(every, time.Second)
			if text := innermost(err); text != said && ctx.Err() == nil {
				said = text
				c.Log.Warn("the metadata service does not say whether this machine is about to go; it is asked again", "err", err)
			}
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return Notice{}, false
		case <-t.C:
		}
	}
}

// metadata sends requests to a metadata service.
type metadata struct {
	endpoint string
	warning  time.Duration
	client   *http.Client
}

const (
	answerTime = 2 * time.Second // the service runs on the machine's own host
	maxAnswer  = 1 << 20
)

// do sends one request with one header. It returns the status, the body and the header of the
// answer. An HTTP error status is not an error.
func (m *metadata) do(ctx context.Context, method, path, name, value string, within time.Duration) (int, []byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.endpoint+path, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set(name, value)
	resp, err := m.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, body, resp.Header, err
}

func unexpected(path string, status int) error {
	return fmt.Errorf("%s answered with status %d", path, status)
}

// client returns a client without a proxy that follows no redirects: the target of a redirect would
// get the token.
func client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// innermost returns the innermost message of an error, without details that change each time, such
// as a local port.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
