package vfs

import (
	"errors"
	"io/fs"
	"testing"
	"time"
)

// Bytes pass at the given rate, whoever writes them. Time in which nobody writes is not made up
// for.
func TestWritesPassAtTheRate(t *testing.T) {
	now := time.Unix(0, 0)
	l := Limit(NewMem(), 1000).(*limited)
	l.now, l.sleep = func() time.Time { return now }, func(d time.Duration) { now = now.Add(d) }
	if err := l.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	a, err := l.Create("d/a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Create("d/b")
	if err != nil {
		t.Fatal(err)
	}
	write := func(f File, n int, want time.Duration) {
		t.Helper()
		if _, err := f.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if got := now.Sub(time.Unix(0, 0)); got != want {
			t.Errorf("after %d bytes it is %v, want %v", n, got, want)
		}
	}
	write(a, 500, 500*time.Millisecond)
	write(b, 250, 750*time.Millisecond)
	now = now.Add(10 * time.Second)
	write(a, 1000, 11750*time.Millisecond)
	if _, err := l.Create("d/a"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file is made twice: %v", err)
	}
	for _, f := range []File{a, b} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := l.OpenAppend("d/a")
	if err != nil {
		t.Fatal(err)
	}
	write(again, 250, 12*time.Second)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if info, err := l.Stat("d/a"); err != nil || info.Size != 1750 {
		t.Errorf("%+v, %v; want 1750 bytes", info, err)
	}
}

// published is a file system on which files appear at once.
type published struct{ *Mem }

func (p published) Publish(name string, content []byte) error {
	f, err := p.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// A file system on which files appear at once stays one behind a limit, and its files count.
func TestALimitLetsFilesAppearAtOnce(t *testing.T) {
	slept := time.Duration(0)
	fsys := Limit(published{NewMem()}, 1000)
	p, ok := fsys.(Publisher)
	if !ok {
		t.Fatal("it does not let them")
	}
	l := fsys.(*limitedPublisher)
	l.now, l.sleep = func() time.Time { return time.Unix(0, 0) }, func(d time.Duration) { slept += d }
	if err := p.Publish("a", make([]byte, 500)); err != nil || slept != time.Second/2 {
		t.Errorf("it took %v, error %v", slept, err)
	}
	if info, err := fsys.Stat("a"); err != nil || info.Size != 500 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, ok := Limit(NewMem(), 1000).(Publisher); ok {
		t.Error("a disk publishes")
	}
}
