package role

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// How roles learn that the run is over, and end with it if they are asked to.

// ends waits for the end of the run. It returns false if ctx ends first. A declaration with fewer
// steps than the run has now is from an earlier part of the run.
func (p *Process) ends(ctx context.Context, client *etcd.Client) bool {
	for d := range client.WatchDone(ctx) {
		if d.Ends(kintsugi.Step(p.Steps)) {
			return true
		}
	}
	return false
}

// endsAlone calls end once etcd says that the run is over, for a worker whom nobody else tells: one
// that is started after all servers have ended would look for them forever. A conductor that is still
// there has toldWithin to say so itself.
func (p *Process) endsAlone(ctx context.Context, client *etcd.Client, end func()) {
	if !p.ends(ctx, client) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(toldWithin):
		p.over.Store(true)
		p.log.Info("the run is over, and no server says so")
		end()
	}
}

const toldWithin = time.Second

// lastWord is the declaration that the run is over, as far as a server knows; nil: none.
type lastWord struct {
	client *etcd.Client
	word   atomic.Pointer[kintsugi.Done]
}

// newLastWord knows at once what was declared before: a server that comes back after the end may
// conduct at once. Of what others declare it learns later, until ctx ends.
func newLastWord(ctx context.Context, client *etcd.Client) (*lastWord, error) {
	l := &lastWord{client: client}
	d, err := client.Done(ctx)
	if err != nil {
		return nil, err
	}
	l.word.Store(d)
	go func() {
		for d := range client.WatchDone(ctx) {
			l.word.Store(&d)
		}
	}()
	return l, nil
}

// say declares that the run is over. A watch that has just begun would hear of it a tenth of a second
// later, and this server may have to conduct again before.
func (l *lastWord) say(ctx context.Context, d kintsugi.Done) error {
	d, err := l.client.PutDone(ctx, d)
	if err == nil {
		l.word.Store(&d)
	}
	return err
}

// lingers is how long a role that ends with the run waits for workers that do not know of the end
// yet.
const lingers = time.Minute

// endsWithRun adds the flag of roles that otherwise stay when the run is over.
func (p *Process) endsWithRun(f *pflag.FlagSet) {
	f.BoolVar(&p.EndWithRun, "end-with-run", false, "end once the run is over and no worker is left, for batch systems; otherwise stay until SIGTERM, so that the last version can be read")
}

// untilOver runs a role; with --end-with-run only until the run is over. The last checkpoint is
// published by then. Workers learn of the end from the conductor. If it had gone, they would look
// for servers that never come.
func (p *Process) untilOver(ctx context.Context, client *etcd.Client, run func(context.Context) error) error {
	if !p.EndWithRun {
		return run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !p.ends(ctx, client) {
			return
		}
		p.withoutWorkers(ctx, client)
		p.over.Store(true)
		p.log.Info("the run is over, and this process with it")
		cancel()
	}()
	err := run(ctx)
	cancel()
	<-ended
	return err
}

// withoutWorkers waits until there are no workers left, but at most for lingers.
func (p *Process) withoutWorkers(ctx context.Context, client *etcd.Client) {
	ctx, cancel := context.WithTimeout(ctx, lingers)
	defer cancel()
	for workers := range client.WatchMembers(ctx, etcd.Worker) {
		if len(workers) == 0 {
			return
		}
	}
}
