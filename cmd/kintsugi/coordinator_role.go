package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/recovery"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

func coordinatorCommand() *cobra.Command {
	return roleCommand("coordinator", "Decide which server holds which shard",
		"  kintsugi coordinator --config run.yaml --etcd 10.0.0.2:2379 --store s3://models/run1",
		(*process).endsWithRun, runCoordinator)
}

// called returns what people may know the run by, who find it in a place where they did not expect it.
func (p *process) called() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s, of process %d on %s", p.Run, os.Getpid(), host)
}

func runCoordinator(ctx context.Context, p *process) error {
	prob, err := describe(&p.settings)
	if err != nil {
		return err
	}
	at, err := openPlace(ctx, p.Store, p.tls)
	if err != nil {
		return err
	}
	if err := at.probe(); errors.Is(err, object.ErrAway) {
		p.log.Warn("the store does not answer; the first view waits for it", "err", err)
	} else if err != nil {
		return err
	}
	client, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	store := checkpoints{settings: &p.settings, problem: prob, fs: at.fs, dir: at.dir, name: p.called(), forgets: at.forgets(), log: p.log}
	protects := p.protects()
	c, err := recovery.NewCoordinator(recovery.Config{
		Etcd: client, Terms: prob.terms(), Newest: store.newest, TLS: p.tls, Log: p.log,
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
