package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// store returns the store of the run's checkpoints: in its folder, or in --store under the folder's
// name.
func (t *training) store() (string, error) {
	if t.Store == "" {
		return filepath.Join(t.Out, checkpointsDir), nil
	}
	return below(t.Store, filepath.Base(t.Out))
}

// place opens the store that --store names. Only the memory of another process requires
// credentials.
func (t *training) place(ctx context.Context, store string) (place, error) {
	if t.TLS != "" && t.tls == nil && strings.HasPrefix(store, object.MemoryScheme) {
		var err error
		if t.tls, err = mtls.Open(t.TLS, mtls.Operator, mtls.Any, nil); err != nil {
			return place{}, err
		}
	}
	return openPlace(ctx, store, t.tls)
}

// fresh refuses a store that cannot be used, or that contains checkpoints of another run with the
// same name: the new run would continue from them.
func (t *training) fresh(ctx context.Context) error {
	if t.Store == "" {
		return nil
	}
	store, err := t.store()
	if err != nil {
		return err
	}
	p, err := t.place(ctx, store)
	if err != nil {
		return err
	}
	if err := p.begins(); err != nil {
		return err
	}
	names, err := ckpt.List(p.fs, p.dir)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w: --store %s holds the checkpoints of another run: choose another --out, or go on with that one by --resume", kintsugi.ErrUsage, store)
	}
	if err != nil {
		return err
	}
	held, err := ckpt.Holder(p.fs, p.dir)
	if err == nil && held != nil {
		err = fmt.Errorf("%w: --store %s belongs to another run, %q since %s, which has no checkpoint there yet: choose another --out, or go on with that one by --resume; if it is over and forgotten, remove what is in the store",
			kintsugi.ErrUsage, store, held.Name, held.Since.Format(time.RFC3339))
	}
	return err
}

// reachEtcd returns an error if the etcd of --etcd does not answer. It is called before a folder is
// created for a run that could not begin.
func (t *training) reachEtcd(ctx context.Context) error {
	if len(t.Etcd) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx) // credentials are watched until it ends
	defer cancel()
	tls, err := t.credentials(ctx, mtls.Operator, mtls.Any, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	client, err := etcd.Dial(ctx, t.Etcd, "train", etcd.WithTLS(tls))
	if err != nil {
		return err
	}
	client.Close()
	return nil
}

// openCheckpoints opens the checkpoints that a path names: a place, a folder, or a run with
// checkpoints in either. certs is the folder of the credentials; "" means that of the run, if it
// has one.
func openCheckpoints(ctx context.Context, path, certs string) (place, error) {
	t := &training{}
	t.register(newFlagSet("checkpoint"))
	config := filepath.Join(path, configFile)
	if isURL(path) {
		t.TLS = cmp.Or(certs, os.Getenv(environment(tlsFlag))) // no run names it
		return t.place(ctx, path)
	}
	if _, err := os.Stat(config); err == nil {
		if err := loadFile(t.flags, config); err != nil {
			return place{}, err
		}
		t.TLS = cmp.Or(certs, t.TLS)
		t.Out = path
		if err := absolute(&t.Out); err != nil {
			return place{}, err
		}
		store, err := t.store()
		if err != nil {
			return place{}, err
		}
		if t.Store != "" {
			return t.place(ctx, store)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return place{}, err
	}
	for _, dir := range []string{filepath.Join(path, checkpointsDir), path} {
		for _, part := range ckpt.Folders() { // one is enough: repair makes manifests anew
			if info, err := os.Stat(filepath.Join(dir, part)); err == nil && info.IsDir() {
				return openPlace(ctx, dir, nil)
			}
		}
	}
	return place{}, fmt.Errorf("%w: %s holds no checkpoints: neither it nor its folder %q has a folder \"manifest\"", kintsugi.ErrUsage, path, checkpointsDir)
}
