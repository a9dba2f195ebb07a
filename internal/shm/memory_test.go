package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func someHeader() Header {
	return Header{Model: 7, Run: 8, Boot: [16]byte{1, 2}, Shard: 1, Shards: 3, Values: 37, Arrays: 3, Rule: 4, RecordBytes: 90, Line: 5, Fence: 6, Owner: 9}
}

// content is what the arrays and the record of a step contain.
func content(h Header, step, decided uint64) (arrays [][]byte, record []byte) {
	rng := rand.New(rand.NewPCG(step, decided))
	for range h.Arrays {
		a := make([]byte, 4*h.Values)
		for i := range a {
			a[i] = byte(rng.Uint32())
		}
		arrays = append(arrays, a)
	}
	record = make([]byte, rng.IntN(int(h.RecordBytes)+1))
	for i := range record {
		record[i] = byte(rng.Uint32())
	}
	return arrays, record
}

// aligned8 returns n bytes whose address is a multiple of 8.
func aligned8(n int) []byte {
	b := make([]byte, n+8)
	for i := range 8 {
		if uintptrOf(b[i:])%8 == 0 {
			return b[i : i+n]
		}
	}
	panic("unreachable")
}

// bank returns the bank that the tests write a version to, which is another for each of two versions
// in a row, and for two tries at one of them.
func bank(step, decided uint64) int { return int((2*step + decided) % Banks) }

// write writes a version byte by byte, in small stores, after each of which a crash may follow.
func write(t *testing.T, m *Memory, keep, step, decided uint64) {
	t.Helper()
	arrays, record := content(m.h, step, decided)
	for i, to := range m.Begin(keep, bank(step, decided)) {
		for at := 0; at < len(to); at += 13 {
			copy(to[at:min(at+13, len(to))], arrays[i][at:])
			m.done()
		}
	}
	if err := m.End(step, decided, record); err != nil {
		t.Fatal(err)
	}
}

// whole reports whether a version is exactly what was written.
func whole(h Header, v Version) bool {
	arrays, record := content(h, v.Step, v.Decided)
	ok := bytes.Equal(record, v.Record) && len(arrays) == len(v.Arrays) && v.Bank == bank(v.Step, v.Decided)
	for i := range arrays {
		ok = ok && bytes.Equal(arrays[i], v.Arrays[i])
	}
	return ok
}

// A process that dies after any store leaves the step that it was writing, or the one before,
// complete. It never leaves an older step than the newest that was released.
func TestACrashAfterAnyStoreLeavesAWholeVersion(t *testing.T) {
	h := someHeader()
	b := aligned8(h.Bytes())
	m := Format(b, h)
	released, reached := uint64(0), uint64(0) // by Begin's keep, and by an End that has begun
	snapshots, found := 0, make(map[string]int)
	m.stored = func() {
		snapshots++
		c := aligned8(len(b))
		copy(c, b)
		_, versions, err := Open(c, h)
		if reached == 0 { // the first version was never finished
			if err == nil && (len(versions) != 1 || !whole(h, versions[0])) || err != nil && !errors.Is(err, ErrRefused) {
				t.Fatalf("before the first version: %v, %v", versions, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("writing step %d: %v", reached, err)
		}
		for _, v := range versions {
			if !whole(h, v) {
				t.Fatalf("writing step %d: step %d is torn", reached, v.Step)
			}
		}
		newest := versions[len(versions)-1].Step
		if newest != reached && newest+1 != reached || newest < released {
			t.Fatalf("writing step %d, released %d: the newest is %d", reached, released, newest)
		}
		found[fmt.Sprint(len(versions), reached-newest)]++
	}
	write(t, m, 0, 100, 1)
	for step := uint64(101); step < 106; step++ {
		released, reached = step-1, step
		write(t, m, step-1, step, 1)
		if step == 103 { // decided anew: the step is written again in its own place
			write(t, m, step-1, step, 2)
		}
	}
	if snapshots < 200 || found["1 1"] == 0 || found["2 0"] == 0 {
		t.Errorf("%d crashes found %v", snapshots, found)
	}
}

// A file that another life wrote on another line is written anew, and nothing of its contents
// remains.
func TestANewLineForgetsTheOneBefore(t *testing.T) {
	h := someHeader()
	b := aligned8(h.Bytes())
	m := Format(b, h)
	write(t, m, 0, 1, 1)
	write(t, m, 1, 2, 1)
	next := h
	next.Line = 6
	m = Format(b, next)
	if _, _, err := Open(b, h); !errors.Is(err, ErrRefused) {
		t.Errorf("a state without a version: %v", err)
	}
	write(t, m, 0, 1, 3)
	got, versions, err := Open(b, h)
	if err != nil || got.Header().Line != 6 || len(versions) != 1 || !whole(next, versions[0]) {
		t.Errorf("%v, %v, %v", got, versions, err)
	}
}

// A version may begin a new line without being written again but for its first array: the rest of
// it stays where it is, though the records have another length now.
func TestWhatIsInABankStays(t *testing.T) {
	h, next := someHeader(), someHeader()
	next.Line, next.RecordBytes = 6, 2*h.RecordBytes
	b := aligned8(next.Bytes())
	m := Format(b, h)
	write(t, m, 0, 1, 1)
	write(t, m, 1, 2, 1)
	if x, ok := m.Bank(1); !ok || x != bank(1, 1) {
		t.Errorf("step 1 is in bank %d, %v", x, ok)
	}
	if x, ok := m.Bank(3); ok {
		t.Errorf("step 3, which is not there, is in bank %d", x)
	}
	m = Format(b, next)
	arrays, record := content(h, 2, 1)
	copy(m.Begin(0, bank(2, 1))[0], arrays[0])
	if err := m.End(2, 1, record); err != nil {
		t.Fatal(err)
	}
	if _, versions, err := Open(b, h); err != nil || len(versions) != 1 || !whole(h, versions[0]) {
		t.Errorf("%v, %v", versions, err)
	}
	Erase(b)
	if _, _, err := Open(b, h); !errors.Is(err, ErrRefused) {
		t.Errorf("a state that was erased: %v", err)
	}
}

func TestForeignAndTornStatesAreRefused(t *testing.T) {
	h := someHeader()
	fresh := func() []byte {
		b := aligned8(h.Bytes())
		m := Format(b, h)
		write(t, m, 0, 1, 1)
		write(t, m, 1, 2, 1)
		return b
	}
	cases := map[string]struct {
		b    []byte
		want Header
	}{
		"nothing":           {nil, h},
		"too short":         {fresh()[:arraysAt+8], h},
		"another run":       {fresh(), with(h, func(h *Header) { h.Run++ })},
		"another model":     {fresh(), with(h, func(h *Header) { h.Model++ })},
		"another boot":      {fresh(), with(h, func(h *Header) { h.Boot[3]++ })},
		"another shard":     {fresh(), with(h, func(h *Header) { h.Shard++ })},
		"another cut":       {fresh(), with(h, func(h *Header) { h.Shards++ })},
		"another rule":      {fresh(), with(h, func(h *Header) { h.Rule++ })},
		"another optimizer": {fresh(), with(h, func(h *Header) { h.Arrays-- })},
	}
	for name, c := range cases {
		if _, versions, err := Open(c.b, c.want); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %d versions, %v", name, len(versions), err)
		}
	}
	b := fresh()
	for at := range slotAt + 2*slotBytes { // every byte that is checked
		used := at < headerBytes+4 || at >= wordAt && at < wordAt+8 || at >= slotAt && (at-slotAt)%slotBytes < 32
		b[at] ^= 0x10
		if _, _, err := Open(b, h); used != errors.Is(err, ErrRefused) {
			t.Errorf("byte %d is wrong: %v", at, err)
		}
		b[at] ^= 0x10
	}
	d := b[slotAt:]
	d[20], d[21] = 0, 1 // as if it had been written so
	binary.LittleEndian.PutUint32(d[described:], sum(d[:described]))
	if _, _, err := Open(b, h); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "bank 256") {
		t.Errorf("a bank that does not exist: %v", err)
	}
	b = fresh()
	_, versions, err := Open(b, h)
	if err != nil {
		t.Fatal(err)
	}
	versions[0].Record[0] ^= 1
	if _, _, err := Open(b, h); !errors.Is(err, ErrRefused) {
		t.Errorf("a record that does not match its checksum: %v", err)
	}
}

func with(h Header, change func(*Header)) Header {
	change(&h)
	return h
}

func TestARecordThatDoesNotFitIsAnError(t *testing.T) {
	h := someHeader()
	b := aligned8(h.Bytes())
	m := Format(b, h)
	write(t, m, 0, 1, 1)
	m.Begin(1, 2)
	if err := m.End(2, 1, make([]byte, h.RecordBytes+1)); err == nil {
		t.Error("no error")
	}
	if _, v, err := Open(b, h); err != nil || len(v) != 1 || v[0].Step != 1 {
		t.Errorf("%v, %v", v, err)
	}
}

func FuzzOpen(f *testing.F) {
	h := Header{Values: 3, Arrays: 1, RecordBytes: 8}
	b := aligned8(h.Bytes())
	m := Format(b, h)
	m.Begin(0, 0)
	if err := m.End(1, 1, []byte("record")); err != nil {
		f.Fatal(err)
	}
	f.Add(b[:slotAt+2*slotBytes])
	f.Fuzz(func(t *testing.T, head []byte) {
		b := aligned8(h.Bytes())
		copy(b[:arraysAt], head)
		if len(head) >= headerBytes+4 { // with a right checksum, so that the numbers behind it are read
			binary.LittleEndian.PutUint32(b[headerBytes:], sum(b[:headerBytes]))
		}
		want, err := decodeHeader(b)
		if err != nil {
			return
		}
		_, versions, err := Open(b, want)
		if err != nil {
			return
		}
		for _, v := range versions {
			for _, a := range v.Arrays {
				_ = append([]byte(nil), a...)
			}
		}
	})
}
