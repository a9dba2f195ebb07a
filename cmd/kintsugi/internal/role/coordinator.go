package role

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
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/recovery"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

// CoordinatorCommand returns the command of a coordinator.
func CoordinatorCommand() *cobra.Command {
	return Command("coordinator", "Watch which processes are alive and decide which server holds which shard",
		"  kintsugi coordinator --config run.yaml --etcd 10.0.0.2:2379 --store s3://models/run1",
		(*Process).endsWithRun, runCoordinator)
}

// called returns a name by which people recognise the run if they find it in an unexpected place.
func (p *Process) called() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s, of process %d on %s", p.Run, os.Getpid(), host)
}

func runCoordinator(ctx context.Context, p *Process) error {
	prob, err := job.Describe(&p.Settings)
	if err != nil {
		return err
	}
	prob.Described(false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at, err := job.OpenPlace(ctx, p.Store, p.Creds)
	if err != nil {
		return err
	}
	usable, refused := make(chan struct{}), make(chan error, 1)
	go func() { // a coordinator that leads meanwhile can say that it waits for the store
		err := at.Probe()
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
func coordinate(ctx context.Context, p *Process, prob *job.Problem, at job.Place, usable <-chan struct{}) error {
	client, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	store := job.Checkpoints{Settings: &p.Settings, Problem: prob, FS: at.FS, Dir: at.Dir, Name: p.called(), Forgets: at.Forgets(), Log: p.log}
	protects := p.Protects()
	c, err := recovery.NewCoordinator(recovery.Config{
		Etcd: client, ID: candidate(), Gone: gone, Terms: prob.Terms(), TLS: p.Creds, Log: p.log,
		Newest: func(ctx context.Context, asks recovery.Asking) (string, kintsugi.Step, kintsugi.Line, error) {
			select {
			case <-usable:
				return store.Newest(ctx, asks)
			case <-ctx.Done():
				return "", 0, 0, context.Cause(ctx)
			}
		},
		Roster: roster.Config{
			Servers: p.Servers, Replicas: protects.Replicas, LapsesForgiven: true, Partial: protects.Running != nil, Copies: protects.Copies > 0,
			NextAnswers: protects.Next,
			Chooses:     protects.Chooses, MoveAfter: time.Duration(p.MoveAfter),
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
