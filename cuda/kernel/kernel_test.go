package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
)

// If a kernel changes, its PTX must be made again, or a GPU would run the old one.
func TestThePTXIsOfTheseSources(t *testing.T) {
	m, err := ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]Family{}
	for _, f := range m.Families {
		made[f.Name] = f
	}
	if len(made) != len(Families()) {
		t.Errorf("the manifest has %d families, there are %d: run make ptx", len(made), len(Families()))
	}
	for _, name := range Families() {
		f := made[name]
		if source, err := Hash(name); err != nil || source != f.Source {
			t.Errorf("%s.ptx was made of other sources than %s.cu and the headers (error %v): run make ptx", name, name, err)
		}
		b, err := os.ReadFile(name + ".ptx")
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != f.PTX {
			t.Errorf("%s.ptx is not the one of the manifest: run make ptx", name)
		}
	}
}

// A spill is traffic to memory that no count of bytes includes, and with too many registers there
// are too few threads to keep memory busy.
func TestKernelsFitTheirRegisters(t *testing.T) {
	m, err := ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Families {
		for _, k := range f.Kernels {
			if k.Spills > 0 {
				t.Errorf("%s spills %d bytes", k.Name, k.Spills)
			}
			if limit := 128; k.Registers > limit {
				t.Errorf("%s takes %d registers, at most %d", k.Name, k.Registers, limit)
			}
			if k.Shared > 48<<10 {
				t.Errorf("%s takes %d bytes of shared memory, more than a block has without asking", k.Name, k.Shared)
			}
		}
	}
}

// That many blocks are to go through an array together on each multiprocessor of an H100 or H200.
// On other GPUs the driver gives the number.
func TestTheBlocksOfASelectionRunAtOnce(t *testing.T) {
	const threads, registers, shared, reserved = 256, 65536, 228 << 10, 1 << 10
	blocks := map[string]int{"select_sample": 6, "select_sieve": 5, "select_recount": 6, "select_count": 6, "select_tiles": 6}
	m, err := ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Families {
		for _, k := range f.Kernels {
			n := blocks[k.Name]
			delete(blocks, k.Name)
			if each := (k.Registers + 7) / 8 * 8 * threads; n*each > registers || n*(k.Shared+reserved) > shared {
				t.Errorf("%s takes %d registers and %d bytes of shared memory: fewer than %d blocks run at once", k.Name, k.Registers, k.Shared, n)
			}
		}
	}
	if len(blocks) > 0 {
		t.Errorf("the manifest lacks kernels of %v", blocks)
	}
}
