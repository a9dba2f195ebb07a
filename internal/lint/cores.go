package lint

import (
	"go/token"
	"slices"
)

// The pure cores decide and do nothing else. They can be tested as tables, replayed from a seed,
// and run millions of times under virtual time, because all their input consists of arguments.
var cores = []string{
	"server/agg", "server/chain", "server/conductor", "server/dbw", "server/reach", "server/shard",
	"recovery/ledger", "recovery/roster", "recovery/scar",
}

// What a core must not import, and what to do instead. A folder includes those below it.
var forbidden = []struct{ path, instead string }{
	{"net", "return the messages to send; the shell sends them"},
	{"os", "take bytes and return bytes; the shell reads and writes files"},
	{"syscall", "take bytes and return bytes; the shell talks to the system"},
	{"io/ioutil", "take bytes and return bytes; the shell reads and writes files"},
	{"sync", "keep no goroutine and no lock: one goroutine of the shell owns a core"},
	{"context", "return at once: a core never waits, so there is nothing to cancel"},
	{"log", "return the reason in words; the shell logs it once"},
	{"runtime", "take what depends on the machine as an argument"},
	{"unsafe", "use plain values; memory tricks belong to kernels and internal/shm"},
	{"crypto/rand", "take a seeded *rand.Rand, or a seed: the same seed must replay the same run"},
	{"google.golang.org/grpc", "use the messages of the root package; internal/transport carries them"},
	{"google.golang.org/protobuf", "use the messages of the root package; internal/transport encodes them"},
}

// Packages of this module that a core must not import, although they are in lower layers.
var forbiddenOurs = []struct{ folder, instead string }{
	{"kernels", "decide about tickets, never about floats: the data plane does arithmetic on arrays"},
	{"proto", "use the messages of the root package; internal/transport encodes them"},
	{"internal/vfs", "take bytes and return bytes; the shell reads and writes files"},
	{"internal/shm", "take bytes and return bytes; the shell maps memory"},
}

// Functions of package time that read a clock or wait. Durations and instants are allowed as
// values.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// Names of math/rand and math/rand/v2 that do not use the global source.
var seeded = []string{
	"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf",
	"Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf",
}

func checkCores(r *report, module string, f *file) {
	if f.test || !slices.Contains(cores, f.folder) {
		return
	}
	for _, i := range f.imports {
		checkCoreImport(r, module, f, i)
	}
	f.uses(func(importPath, name string, at token.Pos) {
		switch importPath {
		case "time":
			if slices.Contains(clock, name) {
				r.at(at, "cores", "%s calls time.%s, but it is a pure core: take the time as an argument, "+
					"and return when to be called again", f.folder, name)
			}
		case "math/rand", "math/rand/v2":
			if !slices.Contains(seeded, name) {
				r.at(at, "cores", "%s uses the global source of rand.%s, but it is a pure core: take a seeded "+
					"*rand.Rand as an argument, so that a seed replays the run", f.folder, name)
			}
		}
	})
}

func checkCoreImport(r *report, module string, f *file, i imported) {
	const message = "%s imports %s, but it is a pure core: %s"
	for _, bad := range forbidden {
		if within(i.path, bad.path) {
			r.at(i.pos, "cores", message, f.folder, i.path, bad.instead)
		}
	}
	folder, ok := ours(module, i.path)
	if !ok {
		return
	}
	for _, bad := range forbiddenOurs {
		if within(folder, bad.folder) {
			r.at(i.pos, "cores", message, f.folder, folder, bad.instead)
		}
	}
}
