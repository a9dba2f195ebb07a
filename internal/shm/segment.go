package shm

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// Segment is memory that two processes of one host share: one creates it and sends its name to the
// other. It has no place in any file system, so the kernel frees it when the last of the processes
// ends, in whatever way.
type Segment struct{ b []byte }

// Access says what a process that opens a segment may do with it. The process that creates it may
// read and write.
type Access bool

// What the other processes may do.
const (
	ReadOnly Access = false // a store ends the process that tries it
	Writable Access = true
)

// ErrNoSegment means that memory cannot be shared with the other process: there is none with that
// name here, it is not what its name describes, or this system has none. Send the bytes in another
// way.
var ErrNoSegment = errors.New("no shared memory")

const (
	segmentMagic = 0x314745534e494b00 // "\0KINSEG1"
	nonceBytes   = 16

	// SegmentHeader is the offset in a segment from which its users may write. The header before it
	// is a page of its own.
	SegmentHeader = 4096
)

// Bytes returns the memory, including its header. It is valid as long as the Segment is reachable;
// a slice of it does not keep the Segment reachable.
func (s *Segment) Bytes() []byte { return s.b }

// mapped returns a segment of mapped bytes. The bytes are unmapped once the segment is unreachable,
// and not before: reading unmapped memory would end the process, while unmapping late only costs
// memory until the next garbage collection.
func mapped(b []byte) *Segment {
	s := &Segment{b: b}
	runtime.AddCleanup(s, unmap, b)
	return s
}

// CreateSegment returns a new segment with room for n bytes after its header, and its name. Other
// processes of the same user on the same host may open it by its name until closeName is called;
// the memory itself stays. Errors are ErrNoSegment.
func CreateSegment(n int, others Access) (s *Segment, name string, closeName func(), err error) {
	if n <= 0 {
		return nil, "", nil, fmt.Errorf("%w: a segment of %d bytes", ErrNoSegment, n)
	}
	b, pid, fd, closeName, err := create(SegmentHeader+n, others)
	if err != nil {
		return nil, "", nil, fmt.Errorf("%w: %w", ErrNoSegment, err)
	}
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	le := binary.LittleEndian
	le.PutUint64(b, segmentMagic)
	le.PutUint64(b[8:], uint64(len(b)))
	copy(b[16:], nonce)
	return mapped(b), fmt.Sprintf("%d.%d.%d.%x", pid, fd, len(b), nonce), closeName, nil
}

// OpenSegment opens the segment whose name another process has sent; it has at most most bytes
// after its header. OpenSegment does not trust the name: the name must lead to memory of this user
// that can neither shrink nor grow, with the size and the nonce in the name. Errors are
// ErrNoSegment.
func OpenSegment(name string, most int, mine Access) (*Segment, error) {
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return nil, fmt.Errorf("%w: %q is no name of a segment", ErrNoSegment, name)
	}
	var n [3]int
	for i := range n {
		v, err := strconv.ParseUint(parts[i], 10, 62)
		if err != nil {
			return nil, fmt.Errorf("%w: %q is no name of a segment", ErrNoSegment, name)
		}
		n[i] = int(v)
	}
	nonce, err := hex.DecodeString(parts[3])
	if err != nil || len(nonce) != nonceBytes {
		return nil, fmt.Errorf("%w: %q is no name of a segment", ErrNoSegment, name)
	}
	if n[2] <= SegmentHeader || n[2] > SegmentHeader+most {
		return nil, fmt.Errorf("%w: a segment of %d bytes, at most %d are expected", ErrNoSegment, n[2], SegmentHeader+most)
	}
	b, err := open(n[0], n[1], n[2], mine)
	if err != nil {
		return nil, fmt.Errorf("%w: segment %d of process %d: %w", ErrNoSegment, n[1], n[0], err)
	}
	s := mapped(b)
	le := binary.LittleEndian
	if le.Uint64(b) != segmentMagic || le.Uint64(b[8:]) != uint64(len(b)) || string(b[16:16+nonceBytes]) != string(nonce) {
		return nil, fmt.Errorf("%w: segment %d of process %d is another one than was meant", ErrNoSegment, n[1], n[0])
	}
	return s, nil
}
