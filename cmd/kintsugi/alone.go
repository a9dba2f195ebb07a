package main

import (
	"context"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// meet returns a client of the run's etcd. It is an error where a run goes on that has other terms: who has them must not take a place there, which another process may fill.
func (p *process) meet(ctx context.Context, who string, terms kintsugi.Terms) (*etcd.Client, error) {
	client, err := etcd.Dial(ctx, p.Etcd, p.Run, etcd.WithTLS(p.tls))
	if err != nil {
		return nil, err
	}
	v, _, err := client.View(ctx)
	if err == nil && v != nil {
		err = terms.Agree(who, v.Terms, "the run")
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}
