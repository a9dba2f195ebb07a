package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

// coordinatorCommand returns the command of a coordinator.
func coordinatorCommand() *cobra.Command {
	return roleCommand("coordinator", "Watch which processes are alive and decide which server holds which shard",
		"  kintsugi coordinator --config run.yaml --etcd 10.0.0.2:2379 --store s3://models/run1",
		(*process).endsWithRun, runCoordinator)
}

// called returns a name by which people recognise the run if they find it in an unexpected place.
func (p *process) called() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s, of process %d on %s", p.Run, os.Getpid(), host)
}

func runCoordinator(ctx context.Context, p *process) error {
	prob, err := describe(&p.settings)
	if err != nil {
		return err
	}
	prob.described(false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at, err := openPlace(ctx, p.Store, p.tls)
	if err != nil {
		return err
	}
	usable, refused := make(chan struct{}), make(chan error, 1)
	go func() { // a coordinator that leads meanwhile can say that it waits for the store
		err := at.probe()
		switch {
		case err == nil:
		case errors.Is(err, object.ErrAway), errors.Is(err, syscall.ENOSPC):
			p.log.Warn("the store does not answer, or is full; a view that needs it waits for it", "err", err)
		case ctx.Err() == nil:
			refused <- err
			cancel()
			return
		}
		close(usable)
	}()
	err = coordinate(ctx, p, prob, at, usable)
	select {
	case why := <-refused:
		return why
	default:
		return err
	}
}

// coordinate campaigns and leads. It reads and writes the store only after usable is closed.
func coordinate(ctx context.Context, p *process, prob *problem, at place, usable <-chan struct{}) error {
	client, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	store := checkpoints{settings: &p.settings, problem: prob, fs: at.fs, dir: at.dir, name: p.called(), forgets: at.forgets(), log: p.log}
	protects := p.protects()
	c, err := recovery.NewCoordinator(recovery.Config{
		Etcd: client, Terms: prob.terms(), TLS: p.tls, Log: p.log,
		Newest: func(ctx context.Context, asks recovery.Asking) (string, kintsugi.Step, kintsugi.Line, error) {
			select {
			case <-usable:
				return store.newest(ctx, asks)
			case <-ctx.Done():
				return "", 0, 0, context.Cause(ctx)
			}
		},
		Roster: roster.Config{
			Servers: p.Servers, Replicas: protects.replicas, LapsesForgiven: true, Partial: protects.running != nil, Copies: protects.copies > 0,
			NextAnswers: protects.next,
			Chooses:     protects.chooses, MoveAfter: time.Duration(p.MoveAfter),
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before Wait
	wg.Go(func() {
		if p.ends(ctx, client) {
			p.over.Store(true)
		}
	})
	return p.untilOver(ctx, client, c.Run)
}
