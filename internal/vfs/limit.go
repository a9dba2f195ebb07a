package vfs

import (
	"sync"
	"time"
)

// Limit returns fs with its writes limited to bytesPerSecond, to see what a slow store does to a
// run. It limits neither reads nor the time of a Sync. The result is a Publisher if fs is one.
func Limit(fs FS, bytesPerSecond float64) FS {
	l := &limited{FS: fs, rate: bytesPerSecond, now: time.Now, sleep: time.Sleep}
	if p, ok := fs.(Publisher); ok {
		return &limitedPublisher{limited: l, publisher: p}
	}
	return l
}

// limitedPublisher is a limited file system that is a Publisher.
type limitedPublisher struct {
	*limited
	publisher Publisher
}

func (l *limitedPublisher) Publish(name string, content []byte) error {
	err := l.publisher.Publish(name, content)
	l.sleep(l.pass(len(content)))
	return err
}

// limited is a file system behind a token bucket of size zero: time in which nothing is written is
// not made up for.
type limited struct {
	FS
	rate  float64
	now   func() time.Time
	sleep func(time.Duration)

	mu   sync.Mutex
	free time.Time // when everything that was written so far has passed
}

func (l *limited) Create(name string) (File, error) { return l.slow(l.FS.Create(name)) }

func (l *limited) OpenAppend(name string) (File, error) { return l.slow(l.FS.OpenAppend(name)) }

func (l *limited) slow(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &limitedFile{File: f, fs: l}, nil
}

// limitedFile is a file whose writes return once their bytes have passed.
type limitedFile struct {
	File
	fs *limited
}

func (f *limitedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.fs.sleep(f.fs.pass(n))
	return n, err
}

// pass returns how long it takes until n more bytes have passed.
func (l *limited) pass(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	return l.free.Sub(now)
}
