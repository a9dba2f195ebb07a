package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// sectorBytes is the unit that a disk writes at once. Unsynced data is lost in such pieces.
const sectorBytes = 512

// Crash takes the machine down and returns a file system with what its disk holds. Every further
// operation on m, and on files opened through m, returns ErrCrashed.
//
// Everything that was synced is kept. rng decides about the rest. It keeps or loses each change to
// a directory by itself, in any order. It cuts an unsynced end of a file anywhere, and makes some
// sectors in it read as zeros. A nil rng loses all unsynced data: the strictest disk possible.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashed = true

	after := NewMem()
	maps.Copy(after.dirs, m.dirs)
	kept := maps.Clone(m.durable)
	for _, c := range m.pending {
		if rng != nil && rng.IntN(2) == 0 {
			c.apply(kept)
		}
	}
	// Two names of one file stay two names of one file. rng is asked in the order of the names, so
	// that a seed always gives the same result.
	survivors := make(map[*inode]*inode, len(kept))
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		file := kept[name]
		if survivors[file] == nil {
			survivors[file] = file.survive(rng)
		}
		after.names[name] = survivors[file]
	}
	after.durable = maps.Clone(after.names)
	return after
}

// survive returns what a crash leaves of a file.
func (f *inode) survive(rng *rand.Rand) *inode {
	n := f.synced
	if rng != nil {
		n += rng.IntN(len(f.data) - f.synced + 1)
	}
	data := append([]byte(nil), f.data[:n]...)
	for lo := f.synced; lo < n; {
		hi := min(n, (lo/sectorBytes+1)*sectorBytes)
		if rng.IntN(4) == 0 {
			clear(data[lo:hi])
		}
		lo = hi
	}
	return &inode{data: data, synced: n}
}
