package etcd

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kintsugi-ml/kintsugi"
)

// Ensemble says which of several etcds this one is. They hold the same keys as long as most of them
// live: one of three may be gone, or two of five. The same peers must be named to all of them, at
// every start.
type Ensemble struct {
	Name   string            // of this one
	Peers  map[string]string // by name: host:port at which the others reach each, this one included
	Listen string            // host:port for clients; the Port of Options is not used

	// Beat is the time between two signs of life of the one that leads. After ten without one the
	// others choose another: it must be well above the time of a message between them. Default 100
	// ms.
	Beat time.Duration
}

// electionBeats are how many signs of life must be missing.
const electionBeats = 10

// Check returns what is wrong with an ensemble, an ErrUsage, or nil.
func (m *Ensemble) Check() error {
	if _, ok := m.Peers[m.Name]; !ok {
		return fmt.Errorf("%w: etcd %q is none of its peers %s: name itself among them", kintsugi.ErrUsage, m.Name, strings.Join(slices.Sorted(maps.Keys(m.Peers)), ", "))
	}
	if len(m.Peers)%2 == 0 {
		return fmt.Errorf("%w: %d etcds outlive no more than %d do; use an odd number", kintsugi.ErrUsage, len(m.Peers), len(m.Peers)-1)
	}
	at := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(m.Peers)) {
		address := m.Peers[name]
		if _, _, err := net.SplitHostPort(address); err != nil || name == "" {
			return fmt.Errorf("%w: etcd %q at %q: give each a name and a host:port at which the others reach it", kintsugi.ErrUsage, name, address)
		}
		if other, taken := at[address]; taken {
			return fmt.Errorf("%w: the etcds %q and %q have one address, %s", kintsugi.ErrUsage, other, name, address)
		}
		at[address] = name
	}
	if m.Beat != 0 && (m.Beat < time.Millisecond || m.Beat > time.Second) {
		return fmt.Errorf("%w: a sign of life each %v; use between 1ms and 1s", kintsugi.ErrUsage, m.Beat)
	}
	if _, _, err := net.SplitHostPort(m.Listen); err != nil {
		return fmt.Errorf("%w: %q is no address for clients; give a host:port", kintsugi.ErrUsage, m.Listen)
	}
	return nil
}

// start starts this one. It is ready once most of them are there.
func (m *Ensemble) start(ctx context.Context, dir string, opt Options) (*Embedded, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if opt.TLS != nil && opt.TLS.CommonName() != peerName {
		return nil, fmt.Errorf("%w: its certificate has the common name %q, and etcds know one another by %q: make one that has it, as kintsugi certs does", kintsugi.ErrUsage, opt.TLS.CommonName(), peerName)
	}
	e, err := start(ctx, m.config(dir, opt), opt)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("most of the %d etcds must be there: %w", len(m.Peers), err)
	}
	return e, err
}

func (m *Ensemble) config(dir string, opt Options) *embed.Config {
	cfg := small(dir, opt)
	beat := m.Beat
	if beat == 0 {
		beat = 100 * time.Millisecond
	}
	cfg.Name = m.Name
	cfg.TickMs, cfg.ElectionMs = uint(beat.Milliseconds()), uint(electionBeats*beat.Milliseconds())
	at := func(address string) []url.URL { return []url.URL{{Scheme: scheme(opt), Host: address}} }
	self := m.Peers[m.Name]
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = at(bound(self)), at(self)
	host, _, _ := net.SplitHostPort(self) // checked
	_, port, _ := net.SplitHostPort(m.Listen)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = at(bound(m.Listen)), at(net.JoinHostPort(host, port))
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Peers)) {
		all = append(all, name+"="+scheme(opt)+"://"+m.Peers[name])
	}
	cfg.InitialCluster = strings.Join(all, ",")
	return cfg
}

// bound returns where to listen for what others reach at an address: etcd listens at numbers only,
// and a name may be that of a service before it.
func bound(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if net.ParseIP(host) == nil && host != "localhost" {
		host = "0.0.0.0"
	}
	return net.JoinHostPort(host, port)
}
