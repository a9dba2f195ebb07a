package ckpt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// network is a store behind a network that breaks. For each request, counted from 0, choose says
// whether it reaches the store and whether its answer comes back.
type network struct {
	object.Store
	choose func(n int) (reaches bool, answer error)

	mu sync.Mutex
	n  int
}

func (w *network) request(f func() error) error {
	w.mu.Lock()
	reaches, answer := w.choose(w.n)
	w.n++
	w.mu.Unlock()
	if reaches {
		if err := f(); answer == nil {
			return err
		}
	}
	return answer
}

func (w *network) Create(ctx context.Context, name string, content []byte) error {
	return w.request(func() error { return w.Store.Create(ctx, name, content) })
}

func (w *network) Read(ctx context.Context, name string, p []byte, offset int64) error {
	return w.request(func() error { return w.Store.Read(ctx, name, p, offset) })
}

func (w *network) Begin(ctx context.Context, name string, p []byte) (n int64, err error) {
	err = w.request(func() (err error) { n, err = w.Store.Begin(ctx, name, p); return err })
	return n, err
}

func (w *network) Stat(ctx context.Context, name string) (n int64, err error) {
	err = w.request(func() (err error) { n, err = w.Store.Stat(ctx, name); return err })
	return n, err
}

func (w *network) List(ctx context.Context, prefix string) (names []string, err error) {
	err = w.request(func() (err error) { names, err = w.Store.List(ctx, prefix); return err })
	return names, err
}

func (w *network) Copy(ctx context.Context, from, to string) error {
	return w.request(func() error { return w.Store.Copy(ctx, from, to) })
}

func (w *network) Remove(ctx context.Context, name string) error {
	return w.request(func() error { return w.Store.Remove(ctx, name) })
}

var patient = object.Retries{Tries: 3, First: time.Nanosecond, Timeout: time.Minute, Rate: 1}

func objectFS(t testing.TB, s object.Store) vfs.FS { return object.NewFS(t.Context(), s, patient) }

func walkOf(m *object.Mem) func(string) []string {
	return func(string) []string { return slices.Sorted(maps.Keys(m.Objects())) }
}

// stride makes tests leave requests out where they run a second time.
func stride() int {
	if testing.Short() {
		return 9
	}
	return 1
}

// A process that dies between any two requests leaves the old checkpoint or the new one.
func TestCrashAfterAnyRequestLeavesTheOldOrTheNewCheckpoint(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	models := storyModels(t, layout)
	for n := 0; ; n += stride() {
		mem := &object.Mem{}
		net := &network{Store: mem, choose: func(i int) (bool, error) {
			if i < n {
				return true, nil
			}
			return false, vfs.ErrCrashed
		}}
		durable, trying := kintsugi.Step(0), kintsugi.Step(10)
		tr, err := openTrainer(objectFS(t, net), layout, kintsugi.RuleMomentum, 2, 1, 1)
		if err == nil {
			err = story(tr, models, func(s kintsugi.Step) { durable, trying = s, s+10 })
		}
		if err != nil && !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("request %d: %v", n, err)
		}
		after := objectFS(t, mem)
		if err := checkAfterCrash(t, after, layout, models, durable, trying); err != nil {
			t.Fatalf("crash at request %d: %v", n, err)
		}
		if err := goOnAfterCrash(after, walkOf(mem), layout, models[40]); err != nil {
			t.Fatalf("crash at request %d, going on: %v", n, err)
		}
		if net.n <= n {
			if n < 60 {
				t.Fatalf("the story takes %d requests: the test tests too little", n)
			}
			return
		}
	}
}

// If any one answer is lost, everything is saved as if it had come.
func TestALostAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	layout := smallLayout(t)
	models := storyModels(t, layout)
	for n := 0; ; n += stride() {
		mem := &object.Mem{}
		net := &network{Store: mem, choose: func(i int) (bool, error) {
			if i == n {
				return true, fmt.Errorf("%w: the answer is lost", object.ErrAway)
			}
			return true, nil
		}}
		tr, err := openTrainer(objectFS(t, net), layout, kintsugi.RuleMomentum, 2, 1, 1)
		if err == nil {
			err = story(tr, models, func(kintsugi.Step) {})
		}
		if err != nil {
			t.Fatalf("the answer to request %d is lost: %v", n, err)
		}
		after := objectFS(t, mem)
		if err := checkAfterCrash(t, after, layout, models, 30, 30); err != nil {
			t.Fatalf("the answer to request %d is lost: %v", n, err)
		}
		if err := goOnAfterCrash(after, walkOf(mem), layout, models[40]); err != nil {
			t.Fatalf("the answer to request %d is lost: %v", n, err)
		}
		if net.n <= n {
			return
		}
	}
}

// Two writers of one shard have different fences, and so different names. Neither harms what the
// other has saved, and the earlier one cannot open again.
func TestTwoWritersInAStoreAreFenced(t *testing.T) {
	layout := smallLayout(t)
	models := storyModels(t, layout)
	mem := &object.Mem{}
	fsys := objectFS(t, mem)
	early := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 1)
	late := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 2)
	early.mustSave(t, 10, models[10])
	late.mustSave(t, 10, models[15]) // the same step, with other values
	if _, err := openTrainer(fsys, layout, kintsugi.RuleMomentum, 2, 1, 1); !errors.Is(err, kintsugi.ErrFenced) {
		t.Errorf("a writer of fence 1 opens after one of fence 2 has saved: %v", err)
	}
	for _, fence := range []kintsugi.Fence{1, 2} {
		m, err := Read(fsys, testDir, (&RunManifest{Line: 1, Step: 10, Fence: fence}).Name())
		if err != nil {
			t.Fatal(err)
		}
		got, err := restoreAll(fsys, m, layout, kintsugi.RuleMomentum)
		if err != nil || !same(got, models[map[kintsugi.Fence]kintsugi.Step{1: 10, 2: 15}[fence]]) {
			t.Errorf("what fence %d saved is not what it restores: %v", fence, err)
		}
	}
}

// late is a store that can be away for writes. Requests that create are lost then, and those that
// remove are carried out when the test says so.
type late struct {
	object.Mem
	away     bool
	removals []string
}

func (l *late) Create(ctx context.Context, name string, content []byte) error {
	if l.away {
		return object.ErrAway
	}
	return l.Mem.Create(ctx, name, content)
}

func (l *late) Remove(ctx context.Context, name string) error {
	if l.away {
		l.removals = append(l.removals, name)
		return object.ErrAway
	}
	return l.Mem.Remove(ctx, name)
}

// A request that was given up may be carried out long afterwards. What a failed save has sent does
// not harm the next one, even if that is of the same step.
func TestWhatAFailedSaveHasSentDoesNoHarmLater(t *testing.T) {
	layout := smallLayout(t)
	models := storyModels(t, layout)
	store := &late{}
	tr := mustTrainer(t, objectFS(t, store), layout, kintsugi.RuleMomentum, 1, 1, 1)
	store.away = true
	if _, err := tr.save(10, models[10]); !errors.Is(err, object.ErrAway) {
		t.Fatalf("a save while the store is away: %v", err)
	}
	store.away = false
	m := tr.mustSave(t, 10, models[10])
	for _, name := range store.removals {
		if err := store.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := restoreAll(tr.fs, m, layout, kintsugi.RuleMomentum); err != nil || !same(got, models[10]) {
		t.Errorf("restore: %v", err)
	}
}
