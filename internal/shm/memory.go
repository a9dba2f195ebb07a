package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// Header says whose state the memory holds. Two headers that differ in any field except Line, Fence
// and Owner belong to unrelated states.
type Header struct {
	Model        uint64   // Layout.Fingerprint
	Run          uint64   // derived from the run's name
	Boot         [16]byte // of the machine: see Boot
	Shard        uint32
	Shards       uint32 // of the run: another number cuts the model in another way
	Values       uint64 // number of values of the shard
	Arrays       uint32 // arrays of a version: the parameters, then the rule's state, of Values each
	Rule         uint32
	RecordBytes  uint64 // room for the record of a version, in bytes
	Line         uint64 // line of the state
	Fence, Owner uint64 // fence of the view, and incarnation, that began it
}

// Version is one version of a shard. Its slices are the memory itself, not copies.
type Version struct {
	Step    uint64
	Decided uint64   // fence under which its commit was decided
	Arrays  [][]byte // each of 4·Values bytes
	Bank    int      // where all but the first of them lie
	Record  []byte   // what the caller stored with it
}

// Banks is the number of banks. The first array of a version lies in one of two places, which take
// turns. Its other arrays lie in one bank of several, so that those of earlier versions can be read
// while steps go on.
const Banks = 6

// ErrRefused means that the memory holds no usable state: it is foreign, torn or unfinished. Take
// the state from the checkpoint instead.
var ErrRefused = errors.New("the state outside the process is refused")

const (
	formatVersion = 2
	magic         = 0x00314d48534e494b // "KINSHM1\0"

	headerBytes = 112  // length of the header, up to its checksum
	wordAt      = 128  // offset of the word that switches, on a cache line of its own
	slotAt      = 192  // offset of the first description
	slotBytes   = 64   // length of a description
	described   = 28   // bytes of it that its checksum covers
	arraysAt    = 4096 // offset of the first array
	align       = 64   // alignment of arrays and records
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Memory is the state of one shard in bytes that another process will read. One goroutine uses it;
// only the arrays between Begin and End may be written by several.
type Memory struct {
	b       []byte
	h       Header
	writing int // the place that is written between Begin and End
	bank    int // and the bank

	stored func() // for tests: called after each store of the protocol
}

func aligned(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// array is the room for an array, bank that for the arrays of a bank.
func (h *Header) array() uint64 { return aligned(4 * h.Values) }
func (h *Header) bank() uint64  { return uint64(max(h.Arrays, 1)-1) * h.array() }

// record returns where the record of a place lies. Records come last: their length may be another
// in the next life of a server, and banks stay where they are.
func (h *Header) record(place int) uint64 {
	return arraysAt + 2*h.array() + Banks*h.bank() + uint64(place)*aligned(h.RecordBytes)
}

// Bytes returns the size of the memory that a state with this header needs.
func (h *Header) Bytes() int { return int(h.record(2)) }

// Bank returns which bytes of the memory bank i is.
func (h *Header) Bank(i int) (lo, hi int) {
	at := arraysAt + 2*h.array() + uint64(i)*h.bank()
	return int(at), int(at + h.bank())
}

// Records returns which bytes of the memory are its records.
func (h *Header) Records() (lo, hi int) { return int(h.record(0)), int(h.record(2)) }

// Erase makes b memory that holds no state. What is in banks stays.
func Erase(b []byte) { clear(b[:min(len(b), headerBytes)]) }

// Format initialises b for the state that h describes, without any version. b has at least
// h.Bytes() bytes and is aligned to 8.
func Format(b []byte, h Header) *Memory {
	m := &Memory{b: b, h: h}
	m.store(0) // invalidates the old contents before anything is written
	clear(b[slotAt : slotAt+2*slotBytes])
	h.encode(b)
	m.done()
	return m
}

func (h *Header) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], h.Shard)
	le.PutUint64(b[16:], h.Model)
	le.PutUint64(b[24:], h.Run)
	copy(b[32:48], h.Boot[:])
	le.PutUint32(b[48:], h.Shards)
	le.PutUint32(b[52:], h.Arrays)
	le.PutUint64(b[56:], h.Values)
	le.PutUint64(b[64:], h.RecordBytes)
	le.PutUint64(b[72:], h.Line)
	le.PutUint64(b[80:], h.Fence)
	le.PutUint64(b[88:], h.Owner)
	le.PutUint32(b[96:], h.Rule)
	clear(b[100:headerBytes])
	le.PutUint32(b[headerBytes:], crc32.Checksum(b[:headerBytes], castagnoli))
}

func decodeHeader(b []byte) (h Header, err error) {
	le := binary.LittleEndian
	switch {
	case len(b) < arraysAt:
		return h, fmt.Errorf("%w: it has %d bytes, a header alone has %d", ErrRefused, len(b), arraysAt)
	case le.Uint64(b) != magic:
		return h, fmt.Errorf("%w: it does not begin as such a file does", ErrRefused)
	case le.Uint32(b[8:]) != formatVersion:
		return h, fmt.Errorf("%w: it has format version %d, this program knows %d", ErrRefused, le.Uint32(b[8:]), formatVersion)
	case le.Uint32(b[headerBytes:]) != crc32.Checksum(b[:headerBytes], castagnoli):
		return h, fmt.Errorf("%w: its header does not match its checksum", ErrRefused)
	}
	h = Header{
		Shard: le.Uint32(b[12:]), Model: le.Uint64(b[16:]), Run: le.Uint64(b[24:]), Shards: le.Uint32(b[48:]), Arrays: le.Uint32(b[52:]),
		Values: le.Uint64(b[56:]), RecordBytes: le.Uint64(b[64:]), Line: le.Uint64(b[72:]), Fence: le.Uint64(b[80:]), Owner: le.Uint64(b[88:]),
		Rule: le.Uint32(b[96:]),
	}
	copy(h.Boot[:], b[32:48])
	const most = 1 << 40
	if h.Values > most || h.Arrays > 16 || h.RecordBytes > most || uint64(len(b)) < h.record(2) {
		return h, fmt.Errorf("%w: its header needs more than the %d bytes that it has", ErrRefused, len(b))
	}
	return h, nil
}

// Open returns the state in b and its versions, one or two, in ascending order. The state's header
// must equal want in everything except Line, Fence, Owner and RecordBytes. Otherwise Open returns
// an ErrRefused that gives the reason. The versions are slices of b.
func Open(b []byte, want Header) (*Memory, []Version, error) {
	h, err := decodeHeader(b)
	if err != nil {
		return nil, nil, err
	}
	same := want
	same.Line, same.Fence, same.Owner, same.RecordBytes = h.Line, h.Fence, h.Owner, h.RecordBytes
	if h != same {
		return nil, nil, fmt.Errorf("%w: it is that of %v, not of %v", ErrRefused, h, want)
	}
	m := &Memory{b: b, h: h}
	versions, err := m.versions()
	return m, versions, err
}

// String names the fields that Open compares.
func (h Header) String() string {
	return fmt.Sprintf("run %016x, model %016x, boot %x, shard %d of %d with %d values in %d arrays, rule %d", h.Run, h.Model, h.Boot[:4], h.Shard, h.Shards, h.Values, h.Arrays, h.Rule)
}

// Header returns the header in the memory.
func (m *Memory) Header() Header { return m.h }

// The layout of the word. Bit 0 is the place of the newer version, bit 1 says that the other place
// is complete too, and bit 2 that there is any version. The upper half is the checksum of the lower
// half.
const (
	bothWhole = 2
	anyWhole  = 4
)

func sealed(low uint32) uint64 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], low)
	return uint64(low) | uint64(crc32.Checksum(b[:], castagnoli))<<32
}

func (m *Memory) word() *uint64 { return (*uint64)(unsafe.Pointer(&m.b[wordAt])) }

// store writes the word. It is a release fence: a reader that sees the word also sees all earlier
// writes.
func (m *Memory) store(low uint32) {
	atomic.StoreUint64(m.word(), sealed(low))
	m.done()
}

func (m *Memory) load() (uint32, error) {
	w := atomic.LoadUint64(m.word())
	low := uint32(w)
	if sealed(low) != w || low > bothWhole|anyWhole|1 || low&anyWhole == 0 && low != 0 {
		return 0, fmt.Errorf("%w: the word that names its versions is %016x", ErrRefused, w)
	}
	if low == 0 {
		return 0, fmt.Errorf("%w: no version in it was finished", ErrRefused)
	}
	return low, nil
}

// done tells a test that a store was made.
func (m *Memory) done() {
	if m.stored != nil {
		m.stored()
	}
}

func (m *Memory) versions() ([]Version, error) {
	low, err := m.load()
	if err != nil {
		return nil, err
	}
	newer := int(low & 1)
	v, err := m.version(newer)
	if err != nil || low&bothWhole == 0 {
		return []Version{v}, err
	}
	older, err := m.version(1 - newer)
	if err == nil && older.Step+1 != v.Step {
		err = fmt.Errorf("%w: it holds steps %d and %d", ErrRefused, older.Step, v.Step)
	}
	return []Version{older, v}, err
}

// arrays returns the arrays of a version: the first in a place, the others in a bank.
func (m *Memory) arrays(place, bank int) (arrays [][]byte) {
	at := arraysAt + uint64(place)*m.h.array()
	lo, _ := m.h.Bank(bank)
	for range m.h.Arrays {
		arrays = append(arrays, m.b[at:at+4*m.h.Values:at+4*m.h.Values])
		at = uint64(lo)
		lo += int(m.h.array())
	}
	return arrays
}

// room returns the memory for the record of a place.
func (m *Memory) room(place int) []byte {
	at := m.h.record(place)
	return m.b[at : at+m.h.RecordBytes : at+m.h.RecordBytes]
}

func (m *Memory) slot(place int) []byte {
	return m.b[slotAt+place*slotBytes : slotAt+(place+1)*slotBytes]
}

func (m *Memory) version(place int) (v Version, err error) {
	le, d := binary.LittleEndian, m.slot(place)
	if le.Uint32(d[described:]) != crc32.Checksum(d[:described], castagnoli) {
		return v, fmt.Errorf("%w: the description of a version does not match its checksum", ErrRefused)
	}
	v.Step, v.Decided = le.Uint64(d[0:]), le.Uint64(d[8:])
	n, bank := le.Uint32(d[16:]), le.Uint32(d[20:])
	record := m.room(place)
	if uint64(n) > uint64(len(record)) {
		return v, fmt.Errorf("%w: the record of step %d has %d bytes, there is room for %d", ErrRefused, v.Step, n, len(record))
	}
	if bank >= Banks {
		return v, fmt.Errorf("%w: step %d lies in bank %d of %d", ErrRefused, v.Step, bank, Banks)
	}
	v.Bank, v.Arrays, v.Record = int(bank), m.arrays(place, int(bank)), record[:n:n]
	if le.Uint32(d[24:]) != crc32.Checksum(v.Record, castagnoli) {
		return v, fmt.Errorf("%w: the record of step %d does not match its checksum", ErrRefused, v.Step)
	}
	return v, nil
}

// Begin gives up the place that does not hold the version of step keep, and returns the arrays of a
// version in that place and in a bank, which the caller writes before End. What the bank holds already
// may be left as it is. Begin panics if it is the bank of the version that stays. If no place holds
// the version to keep, Begin gives up both, and the version written next is the only one.
func (m *Memory) Begin(keep uint64, bank int) [][]byte {
	stays := m.find(keep)
	if stays >= 0 && m.h.Arrays > 1 && m.bankOf(stays) == bank {
		panic(fmt.Sprintf("shm: bank %d is to be written, and holds the version of step %d, which stays", bank, keep))
	}
	if stays < 0 {
		m.store(0)
		m.writing = 0
	} else {
		m.store(anyWhole | uint32(stays))
		m.writing = 1 - stays
	}
	m.bank = bank
	return m.arrays(m.writing, bank)
}

// Bank returns the bank of the version of a step; ok is false if the memory does not hold it.
func (m *Memory) Bank(step uint64) (bank int, ok bool) {
	place := m.find(step)
	if place < 0 {
		return 0, false
	}
	return m.bankOf(place), true
}

func (m *Memory) bankOf(place int) int { return int(binary.LittleEndian.Uint32(m.slot(place)[20:])) }

// find returns the place that holds the version of a step, -1 if none does.
func (m *Memory) find(step uint64) int {
	low, err := m.load()
	if err != nil {
		return -1
	}
	newer := int(low & 1)
	for _, place := range []int{newer, 1 - newer} {
		if whole := place == newer || low&bothWhole != 0; whole && m.step(place) == step {
			return place
		}
	}
	return -1
}

func (m *Memory) step(place int) uint64 { return binary.LittleEndian.Uint64(m.slot(place)) }

// End makes what was written since Begin the newest version. Every store to its arrays must have
// happened before. If the record does not fit in RecordBytes, End returns an error and the version
// does not count.
func (m *Memory) End(step, decided uint64, record []byte) error {
	room := m.room(m.writing)
	if len(record) > len(room) {
		return fmt.Errorf("the record of step %d has %d bytes, there is room for %d in the state outside the process", step, len(record), len(room))
	}
	copy(room, record)
	m.done()
	le, d := binary.LittleEndian, m.slot(m.writing)
	le.PutUint64(d[0:], step)
	m.done()
	le.PutUint64(d[8:], decided)
	m.done()
	le.PutUint32(d[16:], uint32(len(record)))
	le.PutUint32(d[20:], uint32(m.bank))
	le.PutUint32(d[24:], crc32.Checksum(record, castagnoli))
	m.done()
	le.PutUint32(d[described:], crc32.Checksum(d[:described], castagnoli))
	m.done()
	low, err := m.load()
	if err != nil {
		m.store(anyWhole | uint32(m.writing)) // it is the only version
	} else {
		m.store(low&anyWhole | bothWhole | uint32(m.writing))
	}
	return nil
}
