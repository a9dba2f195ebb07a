package cuda

import (
	"errors"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// segment lends GPU memory of one kind to one operation, until it is reset. It keeps the memory for
// the next operation, in one slab once it knows how much an operation needs.
type segment struct {
	pinned bool // each slab has a twin in pinned memory of the host
	apart  bool // for tests under a sanitizer: each array has a slab of its exact size
	slabs  []slab
}

type slab struct {
	at   driver.Ptr
	host []byte // nil unless pinned
	size int
	used int
	sent int // bytes of host that have been copied to the GPU
}

// region is memory that a segment has lent.
type region struct {
	at   driver.Ptr
	host []byte
}

const (
	alignment = 256
	vector    = 16 // kernels read an array up to the next multiple of this many bytes
	leastSlab = 1 << 20
)

// lend returns n > 0 bytes with unspecified contents, at a multiple of 256.
func (g *segment) lend(c driver.Context, n int) (region, error) {
	size := ceil(n, alignment) * alignment
	if g.apart {
		size = ceil(n, vector) * vector
	}
	if len(g.slabs) == 0 || g.apart || g.slabs[len(g.slabs)-1].size-g.slabs[len(g.slabs)-1].used < size {
		room := size
		if !g.apart {
			room = max(size, leastSlab, g.room()) // double: a large gradient must not need a slab for each chunk
		}
		if err := g.grow(c, room); err != nil {
			return region{}, err
		}
	}
	s := &g.slabs[len(g.slabs)-1]
	r := region{at: s.at + driver.Ptr(s.used)}
	if g.pinned {
		r.host = s.host[s.used:][:n:n]
	}
	s.used += size
	return r, nil
}

func (g *segment) grow(c driver.Context, size int) error {
	s := slab{size: size}
	var err error
	if s.at, err = c.Alloc(size); err != nil {
		return err
	}
	if g.pinned {
		if s.host, err = c.HostAlloc(size); err != nil {
			return errors.Join(err, c.Free(s.at))
		}
	}
	g.slabs = append(g.slabs, s)
	return nil
}

// reset takes back everything that was lent.
func (g *segment) reset(c driver.Context) error {
	if len(g.slabs) == 1 && !g.apart {
		g.slabs[0].used, g.slabs[0].sent = 0, 0
		return nil
	}
	total := g.room()
	if total == 0 {
		return nil
	}
	if err := g.free(c); err != nil || g.apart {
		return err
	}
	return g.grow(c, total)
}

// room returns the size of all slabs, in bytes.
func (g *segment) room() (total int) {
	for _, s := range g.slabs {
		total += s.size
	}
	return total
}

func (g *segment) free(c driver.Context) error {
	var err error
	for _, s := range g.slabs {
		err = errors.Join(err, c.Free(s.at))
		if s.host != nil {
			err = errors.Join(err, c.HostFree(s.host))
		}
	}
	g.slabs = nil
	return err
}
