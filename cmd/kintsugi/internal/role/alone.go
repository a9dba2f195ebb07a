package role

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// How a process that was started by hand works with the others: the address at which they reach it,
// and whether its place is still its own.

// checkListen refuses a --listen, or the --advertise that is to stand for it, that others cannot
// dial.
func checkListen(listen, reached string) error {
	host, err := checkHostPort(listen)
	if err != nil {
		return err
	}
	if reached != "" {
		_, err := dialled(reached, "1")
		return err
	}
	if anyHost(host) {
		return fmt.Errorf("%w: --listen %s: the others dial what stands here, so it must name the address, or the host, at which they reach this server; or --advertise must", kintsugi.ErrUsage, listen)
	}
	return nil
}

// checkHostPort returns the host of a --listen, and checks the port.
func checkHostPort(listen string) (host string, err error) {
	host, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("%w: --listen %q: use HOST:PORT, with a port from 0 to 65535", kintsugi.ErrUsage, listen)
	}
	return host, nil
}

// dialled returns the address of an --advertise. Its port is port if it has none.
func dialled(reached, port string) (string, error) {
	host, its, err := net.SplitHostPort(reached)
	if err != nil {
		host, its = strings.TrimSuffix(strings.TrimPrefix(reached, "["), "]"), port
	}
	n, err := net.LookupPort("tcp", its)
	if err != nil || n == 0 || anyHost(host) || strings.ContainsAny(host, "/@[] \t") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("%w: --advertise %q: use HOST or HOST:PORT, at which the others reach this server", kintsugi.ErrUsage, reached)
	}
	return net.JoinHostPort(host, its), nil
}

// anyHost reports whether a host stands for all addresses of the machine, which nobody can dial.
func anyHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// listen opens --listen, and returns the address that others dial: that of --advertise, or the host
// as it was given, since a certificate may contain only its name, and the actual port.
func (p *Process) listen() (net.Listener, string, error) {
	lis, err := transport.Listen(p.Listen)
	if err != nil {
		return nil, "", err
	}
	host, _, _ := net.SplitHostPort(p.Listen) // checkListen has checked it
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	if p.Reached != "" {
		address, err := dialled(p.Reached, port)
		return lis, address, err
	}
	if loopback(lis.Addr().String()) && !slices.ContainsFunc(p.Etcd, loopback) {
		p.log.Warn("this server is reached by processes of this host alone: if others are on other hosts, --listen must name an address of this one", "address", lis.Addr().String())
	}
	return lis, net.JoinHostPort(host, port), nil
}

// loopback reports whether only processes of this host can reach host:port.
func loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dial returns a client for the run as soon as etcd answers.
func (p *Process) dial(ctx context.Context) (*etcd.Client, error) {
	if p.EtcdWait > etcdWait {
		late := time.AfterFunc(etcdWait, func() { p.log.Info("etcd does not answer yet", "endpoints", p.Etcd, "waits", p.EtcdWait.String()) })
		defer late.Stop()
	}
	return job.DialEtcd(ctx, p.Etcd, p.Run, etcd.WithTLS(p.Creds), etcd.WithTimeout(p.EtcdWait))
}

// Meet returns a client for the run's etcd. If the run has already begun with other terms, it
// returns an error: such a process must not take a place, which another process may fill.
func (p *Process) Meet(ctx context.Context, who string, terms kintsugi.Terms) (*etcd.Client, error) {
	client, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := agree(ctx, client, who, terms); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// agree returns an error if the run has other terms, as far as it has begun.
func agree(ctx context.Context, client *etcd.Client, who string, terms kintsugi.Terms) error {
	v, _, err := client.View(ctx)
	if err != nil || v == nil {
		return err
	}
	if err := terms.Agree(who, v.Terms, "the run"); err != nil { // and will not tomorrow
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	return nil
}

// inPlace calls work until it ends, or until a later process has taken the place, which is an
// ErrUsage: two processes that are restarted would otherwise take the place from each other for
// ever. (A process that takes any place will take another.) It also ends work if etcd has lost the
// run; the next life of the process then begins in the etcd that is there. If etcd is silent, it
// logs that, as others then take this process for dead.
func (p *Process) inPlace(ctx context.Context, client *etcd.Client, place *etcd.Registration, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if client.WentBack(ctx) {
			cancel(ErrForgotten)
		}
	}()
	go func() {
		silent := false
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-place.Changes():
				switch {
				case s.State == etcd.Superseded:
					cancel(errTaken)
					return
				case s.State == etcd.Forgotten:
					cancel(ErrForgotten)
					return
				case s.State == etcd.Silent:
					p.log.Warn("etcd does not answer: the others take this process for dead until it does")
				case silent && s.State == etcd.Held:
					p.log.Info("etcd answers again")
				}
				silent = s.State == etcd.Silent
			}
		}
	}()
	err := work(ctx)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrForgotten):
		return ErrForgotten
	case errors.Is(err, kintsugi.ErrFenced), errors.Is(cause, errTaken):
		if p.Any {
			return errLost
		}
		return errTaken
	}
	return err
}

// Emptied returns a channel that is closed when etcd has lost what it knew of the run.
func Emptied(ctx context.Context, client *etcd.Client) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		if client.Emptied(ctx) {
			close(c)
		}
	}()
	return c
}

// ErrForgotten ends a process whose etcd has come back without its data: it would wait there for
// views that nobody makes.
var ErrForgotten = errors.New("etcd has lost what it knew of this run: start this process again, as all others; the run then goes on from its newest checkpoint")

var errTaken = fmt.Errorf("%w: a process that was started later has the place of this one, which ends: start each --index once in a --run", kintsugi.ErrUsage)
