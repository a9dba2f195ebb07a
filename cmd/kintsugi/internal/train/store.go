package train

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
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// StoreName returns the store of the run's checkpoints: in its folder, or in --store under the folder's
// name.
func (t *Training) StoreName() (string, error) {
	if t.Store == "" {
		return filepath.Join(t.Out, record.Checkpoints), nil
	}
	return job.Below(t.Store, filepath.Base(t.Out))
}

// Place opens the store that --store names. Only the memory of another process requires
// credentials.
func (t *Training) Place(ctx context.Context, store string) (job.Place, error) {
	if t.TLS != "" && t.tls == nil && strings.HasPrefix(store, object.MemoryScheme) {
		var err error
		if t.tls, err = mtls.Open(t.TLS, mtls.Operator, mtls.Any, nil); err != nil {
			return job.Place{}, err
		}
	}
	return job.OpenPlace(ctx, store, t.tls)
}

// Fresh refuses a store that cannot be used, or that contains checkpoints of another run with the
// same name: the new run would continue from them.
func (t *Training) Fresh(ctx context.Context) error {
	if t.Store == "" {
		return nil
	}
	store, err := t.StoreName()
	if err != nil {
		return err
	}
	p, err := t.Place(ctx, store)
	if err != nil {
		return err
	}
	if err := p.Begins(); err != nil {
		return err
	}
	names, err := ckpt.List(p.FS, p.Dir)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w: --store %s holds the checkpoints of another run: choose another --out, or go on with that one by --resume", kintsugi.ErrUsage, store)
	}
	if err != nil {
		return err
	}
	held, err := ckpt.Holder(p.FS, p.Dir)
	if err == nil && held != nil {
		err = fmt.Errorf("%w: --store %s belongs to another run, %q since %s, which has no checkpoint there yet: choose another --out, or go on with that one by --resume; if it is over and forgotten, remove what is in the store",
			kintsugi.ErrUsage, store, held.Name, held.Since.Format(time.RFC3339))
	}
	return err
}

// reachEtcd returns an error if the etcd of --etcd does not answer. It is called before a folder is
// created for a run that could not begin.
func (t *Training) reachEtcd(ctx context.Context) error {
	if len(t.Etcd) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx) // credentials are watched until it ends
	defer cancel()
	tls, err := t.Credentials(ctx, mtls.Operator, mtls.Any, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	client, err := job.DialEtcd(ctx, t.Etcd, "train", etcd.WithTLS(tls))
	if err != nil {
		return err
	}
	client.Close()
	return nil
}

// OpenCheckpoints opens the checkpoints that a path names: a place, a folder, or a run with
// checkpoints in either. certs is the folder of the credentials; "" means that of the run, if it
// has one.
func OpenCheckpoints(ctx context.Context, path, certs string) (job.Place, error) {
	t := &Training{}
	t.Register(job.NewFlagSet("checkpoint"))
	config := filepath.Join(path, ConfigFile)
	if job.IsURL(path) {
		t.TLS = cmp.Or(certs, os.Getenv(job.Environment(job.TLSFlag))) // no run names it
		return t.Place(ctx, path)
	}
	if _, err := os.Stat(config); err == nil {
		if err := job.LoadFile(t.Flags, config); err != nil {
			return job.Place{}, err
		}
		t.TLS = cmp.Or(certs, t.TLS)
		t.Out = path
		if err := Absolute(&t.Out); err != nil {
			return job.Place{}, err
		}
		store, err := t.StoreName()
		if err != nil {
			return job.Place{}, err
		}
		if t.Store != "" {
			return t.Place(ctx, store)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return job.Place{}, err
	}
	for _, dir := range []string{filepath.Join(path, record.Checkpoints), path} {
		for _, part := range ckpt.Folders() { // one is enough: repair makes manifests anew
			if info, err := os.Stat(filepath.Join(dir, part)); err == nil && info.IsDir() {
				return job.OpenPlace(ctx, dir, nil)
			}
		}
	}
	return job.Place{}, fmt.Errorf("%w: %s holds no checkpoints: neither it nor its folder %q has a folder \"manifest\"", kintsugi.ErrUsage, path, record.Checkpoints)
}
