package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// How roles hear that the run is over, and end with it if they are asked to.

// ends waits for the end of the run, and reports whether it came before that of ctx. The word of
// fewer steps than the run has now is that of a time when it had no more.
func (p *process) ends(ctx context.Context, client *etcd.Client) bool {
	for d := range client.WatchDone(ctx) {
		if d.Ends(kintsugi.Step(p.Steps)) {
			return true
		}
	}
	return false
}

// lastWord returns a function that returns the run's last word, as far as it has come here; nil: it has none.
func lastWord(ctx context.Context, client *etcd.Client) func() *kintsugi.Done {
	var word atomic.Pointer[kintsugi.Done]
	go func() {
		for d := range client.WatchDone(ctx) {
			word.Store(&d)
		}
	}()
	return word.Load
}

// lingers is how long a role that ends with the run stays for workers that have not heard of it.
const lingers = time.Minute

// endsWithRun adds the flag of roles that else stay when the run is over.
func (p *process) endsWithRun(f *pflag.FlagSet) {
	f.BoolVar(&p.EndWithRun, "end-with-run", false, "end once the run is over and no worker is left, for batch systems; otherwise stay until SIGTERM, so that the last version can be read")
}

// untilOver runs a role, with --end-with-run until the run is over. Its last checkpoint is
// published by then. Workers hear of the end from the conductor: one that found nobody would look
// for servers that never come.
func (p *process) untilOver(ctx context.Context, client *etcd.Client, run func(context.Context) error) error {
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

// withoutWorkers waits until no worker is left, or for as long as a role lingers.
func (p *process) withoutWorkers(ctx context.Context, client *etcd.Client) {
	ctx, cancel := context.WithTimeout(ctx, lingers)
	defer cancel()
	for workers := range client.WatchMembers(ctx, etcd.Worker) {
		if len(workers) == 0 {
			return
		}
	}
}
