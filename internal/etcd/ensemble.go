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

// Ensemble says which member of an ensemble this etcd is. All members hold the same keys as long as
// most of them are alive: one of three may be gone, or two of five. All members must be given the
// same peers at every start.
type Ensemble struct {
	Name   string            // name of this member
	Peers  map[string]string // by name: the host:port at which the others reach a member; includes this member
	Listen string            // host:port for clients; Options.Port is not used

	// Beat is the time between two heartbeats of the leader. After ten beats without one, the
	// others elect a new leader. So it must be much longer than the transmission time of a message
	// between members. Default: 100 ms.
	Beat time.Duration
}

// electionBeats is the number of missing heartbeats that causes an election.
const electionBeats = 10

// Check returns an ErrUsage if the ensemble is invalid.
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

// start starts this member. It is ready when most members have started.
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
	if len(m.Peers) == 1 { // nobody dials the address, but it must not change
		cfg.ListenPeerUrls = at("127.0.0.1:0")
	}
	host, _, _ := net.SplitHostPort(self) // Check has checked it
	_, port, _ := net.SplitHostPort(m.Listen)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = at(bound(m.Listen)), at(net.JoinHostPort(host, port))
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Peers)) {
		all = append(all, name+"="+scheme(opt)+"://"+m.Peers[name])
	}
	cfg.InitialCluster = strings.Join(all, ",")
	return cfg
}

// bound returns the address to listen on for an address at which others reach this member. etcd
// listens on IP addresses only, and a name may be that of a service in front of it.
func bound(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if net.ParseIP(host) == nil && host != "localhost" {
		host = "0.0.0.0"
	}
	return net.JoinHostPort(host, port)
}
