package role

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
	"github.com/kintsugi-ml/kintsugi/server"
)

// What a process does when it is about to go: see docs/recovery.md.

// Notices are the flags for the sources of notices.
type Notices struct {
	Notice         string
	NoticeEndpoint string
}

// Register adds the flags for notices.
func (n *Notices) Register(f *pflag.FlagSet) {
	f.StringVar(&n.Notice, "notice", "auto", "which cloud to ask whether this machine is about to go: aws, gcp, azure, auto (the one that its firmware names, if any) or none; SIGTERM is a notice as well")
	f.StringVar(&n.NoticeEndpoint, "notice-endpoint", "", "URL of the cloud's metadata service (default http://169.254.169.254)")
}

// NoticeConfig returns how a process, which has the given time after a notice, learns of one.
func (n *Notices) NoticeConfig(warning time.Duration) notice.Config {
	return notice.Config{Source: n.Notice, Endpoint: n.NoticeEndpoint, Warning: warning}
}

// CheckNotices returns a usage error for settings that no process can have.
func (n *Notices) CheckNotices(warning time.Duration) error { return n.NoticeConfig(warning).Check() }

// onNotice sets what this process does when it has notice. The process ends when f has returned or
// the time is up.
func (p *Process) onNotice(f func(context.Context, notice.Notice)) { p.handOver.Store(&f) }

// untilNotice runs a role until it ends, is interrupted, or has had notice and has handed over what
// others need. A second notice, or an interrupt, ends it at once.
func (p *Process) untilNotice(ctx context.Context, run func(context.Context, *Process) error) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt)
	defer cancel()
	cfg := p.NoticeConfig(p.Warning)
	cfg.Log = p.log
	notices := notice.Watch(ctx, cfg)
	role, stop := context.WithCancel(ctx)
	defer stop()
	had := make(chan struct{})
	go func() {
		defer stop()
		select {
		case <-role.Done():
		case n := <-notices:
			close(had)
			p.goes(role, n, notices)
		}
	}()
	err := p.unlessItHangs(role, run)
	select {
	case <-had:
		if !p.over.Load() && (err == nil || errors.Is(err, context.Canceled)) {
			return cli.ErrLeft
		}
	default:
	}
	return err
}

// goes hands over.
func (p *Process) goes(ctx context.Context, n notice.Notice, more <-chan notice.Notice) {
	p.noticed.Store(true)
	left := time.Until(n.Deadline)
	p.log.Info("this process is about to go", "reason", n.Reason, "seconds", left.Seconds())
	ctx, cancel := context.WithDeadline(ctx, n.Deadline.Add(-min(time.Second, left/10))) // leave time for an orderly end
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-more:
			cancel()
		}
	}()
	if f := p.handOver.Load(); f != nil {
		(*f)(ctx, n)
	}
}

// announced is the value that a server has registered.
type announced struct {
	place *etcd.Registration

	mu    sync.Mutex
	value ServerValue
}

// tell changes the value.
func (a *announced) tell(ctx context.Context, change func(*ServerValue)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.value)
	return a.place.Tell(ctx, a.value)
}

// whole reports that the server has caught up, as server.Config.Whole.
func (a *announced) whole(ctx context.Context, since kintsugi.ViewNumber) error {
	return a.tell(ctx, func(v *ServerValue) { v.Whole = since })
}

// apart reports which servers it does not reach, as server.Config.Apart.
func (a *announced) apart(ctx context.Context, whom []kintsugi.Life) error {
	return a.tell(ctx, func(v *ServerValue) { v.Apart = whom })
}

// sayStanding tells servers that are about to go that the run stands.
func sayStanding(client *etcd.Client) func(context.Context, kintsugi.ViewNumber, kintsugi.Step) error {
	return func(ctx context.Context, view kintsugi.ViewNumber, step kintsugi.Step) error {
		return client.PutStanding(ctx, etcd.Standing{View: view, Step: step})
	}
}

// holding returns the servers that wait until the run stands.
func holding(servers []etcd.Member) []kintsugi.Member {
	var list []kintsugi.Member
	for _, m := range servers {
		var v ServerValue
		if err := json.Unmarshal(m.Value, &v); err == nil && v.Hold {
			list = append(list, kintsugi.Member{Server: kintsugi.ServerID(m.Index), Incarnation: m.Incarnation})
		}
	}
	return list
}

// handingOver is a server that has had notice.
type handingOver struct {
	*Process
	client *etcd.Client
	server *server.Server
	self   *announced
}

// run returns when nobody needs this server any more, or when its time is up. If others hold its
// shards, it asks to be left out of the view. If others cannot do without it, because they do not
// hold everything yet or never will, the run stands until there is a checkpoint. Neither is needed
// if the server keeps its shard in the memory of its machine, the machine stays, and the server has
// taken over no other shard.
func (h *handingOver) run(ctx context.Context, n notice.Notice) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if h.ends(ctx, h.client) {
			h.over.Store(true)
			cancel()
		}
	}()
	if h.Outside != "" && !n.Machine && !h.server.StandsIn() {
		return
	}
	if h.Protects().Replicas > 1 && h.leftOut(ctx, n) {
		return
	}
	h.say(ctx, func(v *ServerValue) { v.Hold = true })
	out := make(chan struct{})
	go func() {
		if h.server.Out(ctx) == nil {
			close(out)
		}
	}()
	held := h.client.WatchStanding(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-out:
			return
		case at, ok := <-held:
			if !ok {
				return
			}
			if at.View == h.server.View() {
				h.log.Info("the run stands, and what this server holds is in the checkpoint", "step", at.Step)
				return
			}
		}
	}
}

// leftOut asks to be left out of the view, and waits for that for half of the time that is left.
func (h *handingOver) leftOut(ctx context.Context, n notice.Notice) bool {
	h.say(ctx, func(v *ServerValue) { v.Leaving = true })
	ctx, cancel := context.WithTimeout(ctx, time.Until(n.Deadline)/2)
	defer cancel()
	if h.server.Out(ctx) != nil {
		return false
	}
	h.log.Info("steps go on without this server")
	return true
}

func (h *handingOver) say(ctx context.Context, change func(*ServerValue)) {
	if err := h.self.tell(ctx, change); err != nil && ctx.Err() == nil {
		h.log.Warn("say that this server is about to go", "err", err)
	}
}
