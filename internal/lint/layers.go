package lint

import "strings"

// An entry of the table puts packages into a layer.
type entry struct {
	layer int
	path  string // relative to the module; "" is the root package. With a final /... the folders below belong to it
	why   string
}

// The architecture. A package imports packages of lower layers, and those of its own entry. Test files
// may reach further, but not across the three roles.
//
// A new package needs a line here: decide what it may know before writing it. Do not move a package up
// to make an import pass; ask first why it needs to know that.
var table = []entry{
	{11, "cmd/kintsugi", "puts the commands together, so it knows all of them; nothing imports it"},
	{10, "cmd/kintsugi/internal/measure", "commands that start runs and measure them"},
	{10, "cmd/kintsugi/internal/checkpoint", "commands on what runs have saved; a new run begins with some of it"},
	{9, "cmd/kintsugi/internal/train", "a run from its beginning to its end: starts the roles, and follows what they compute"},
	{8, "cmd/kintsugi/internal/look", "what is said of a run by those that take no part in it"},
	{7, "cmd/kintsugi/internal/role", "the processes of a run: each knows what the run is, and none who has started it"},
	{6, "cmd/kintsugi/internal/job", "what a run trains and where it saves; the same in all of its processes"},
	{5, "cmd/kintsugi/internal/cli", "what commands look like, whatever they do"},
	{11, "examples/...", "programs as a stranger would write them, so they may use all that is public; nothing imports them"},
	{6, "bench/machine", "a question about the whole system, as are the next: none of them needs another, and only the command that runs them imports them"},
	{6, "bench/cluster", "what runs cost and survive"},
	{6, "bench/goodput", "how much work is left under random failures"},
	{6, "bench/drawn", "whether drawn settings and faults break a promise"},
	{6, "bench/partial", "the experiment of SCAR"},
	{6, "bench/quota", "the experiment of DBW"},
	{6, "bench/failure", "the experiment of Training Through Failure"},
	{6, "bench/codecs", "how small gradients can be"},
	{6, "bench/rates", "which learning rate a model tolerates"},
	{5, "bench/...", "what measurements have in common"},

	{4, "internal/launch/...", "a cluster of real processes: starts every role, so it stands above them"},
	{4, "internal/live", "a cluster of real shells in one process"},
	{4, "internal/sim", "a cluster under virtual time: runs the same cores, so it stands above them"},
	{4, "internal/virtual", "a training under virtual time, with the real conductor"},

	{3, "worker", "a shell: one role of a run. Roles meet in messages, or a change to one becomes a change to all"},
	{3, "server", "a shell: one role of a run"},
	{3, "recovery", "a shell: one role of a run"},

	{2, "server/shard", "pure: a replica's decisions, built on agg and chain"},
	{2, "server/conductor", "pure: the decisions of a run, built on agg and dbw"},
	{2, "internal/transport/...", "carries the messages; knows no role, so that each role can be tested without it"},
	{2, "internal/etcd/...", "keeps views and leases; knows no role"},
	{2, "worker/rows/...", "steps of models whose rows have owners: needs the examples and the description"},
	{2, "worker/engine/...", "executes a described model on a device; a model is described without knowing its engine"},
	{2, "cuda/...", "the same contract as kernels on a GPU; chosen in cmd/kintsugi, so that no other package needs one"},

	{1, "server/agg", "pure: who is counted"},
	{1, "server/dbw", "pure: how many to wait for"},
	{1, "server/chain", "pure: what a replica owes its neighbours"},
	{1, "server/reach", "pure: whom a server says that it does not reach"},
	{1, "recovery/roster", "pure: who is in the next view"},
	{1, "recovery/scar", "pure: which chunks to save"},
	{1, "recovery/choose", "pure: which way to survive costs least"},
	{1, "recovery/ledger", "pure: what a failure costs"},
	{1, "recovery/ckpt/...", "the checkpoint's format and files, of use without a cluster"},
	{1, "kernels/compress/...", "codecs: arithmetic on arrays"},
	{1, "kernels/blas/...", "matrix products: arithmetic on arrays"},
	{1, "kernels/nn/...", "layers of networks: arithmetic on arrays"},
	{1, "kernels/stream", "moves memory: the bound of what does arithmetic on arrays"},
	{1, "kernels/kernelstest", "the contract of kernels as a test; every device imports it, so it knows none"},
	{1, "worker/data/...", "reads examples; knows no model"},
	{1, "internal/mtls", "proves who is at the other end of a connection; knows no message, so that all that connect can have it"},
	{1, "internal/cost", "pure: what seconds of nodes come to in money; of use to whoever has the seconds"},
	{1, "internal/notice", "asks whether this machine is about to go; of use to every process"},
	{1, "worker/fates", "pure: what a worker makes of its pushes until it knows what became of them"},
	{1, "worker/kept", "pure: what a worker keeps while servers are away"},
	{1, "worker/local", "pure: several steps of a worker as one gradient"},
	{1, "worker/program/...", "runs a program that computes gradients of a model of its own; knows no model and no server"},
	{1, "worker/model/...", "describes models; knows no server, so that a model can be tried alone"},

	{0, "", "the vocabulary: what everyone knows can know no one"},
	{0, "worker/timeout", "pure: how long to wait for an answer before whoever owes it counts as hung"},
	{0, "kernels", "arithmetic on arrays: slices in, slices out"},
	{0, "kernels/internal/...", "C code of kernels, behind functions of Go"},
	{0, "proto/...", "the wire contract, generated"},
	{0, "python", "the text of the module of programs in Python, which knows nothing of Go"},
	{0, "internal/vfs/...", "files, with crashes on demand; of use to anyone"},
	{1, "internal/serial", "whether histories are those of one server; only tests import it"},

	{0, "internal/script/...", "reads the scripts of tests; of use to anyone"},
	{0, "internal/words", "says numbers to people; of use to anyone"},
	{0, "internal/fade", "means that forget; of use to whoever measures"},
	{0, "internal/spread", "copies of large arrays; of use to anyone"},
	{0, "internal/shm", "memory shared between processes: the one other place for unsafe"},
	{0, "internal/lint", "reads source text; must not depend on what it judges"},
	{0, "internal/race", "whether the race detector watches; only tests ask"},
}

// extra lists the imports within a layer that are right all the same.
var extra = []struct{ from, to, why string }{
	{"kernels", "kernels/internal/carryless", "its own C code; only it and packages below it can import that"},
	{"recovery/ckpt", "kernels/compress", "a chunk on disk may be stored in a codec of the wire"},
}

// The roles, and the packages below them, never import one another: not even the pure ones. What two
// roles both need is a noun, and nouns live in the root package.
var roles = []string{"worker", "server", "recovery"}

// lookup returns the entry of a folder, or nil.
func lookup(folder string) *entry {
	var best *entry
	for i := range table {
		e := &table[i]
		base, tree := strings.CutSuffix(e.path, "/...")
		if folder != base && !(tree && within(folder, base)) {
			continue
		}
		if best == nil || len(e.path) > len(best.path) {
			best = e
		}
	}
	return best
}

// within reports whether folder is base or lies below it.
func within(folder, base string) bool {
	return folder == base || base != "" && strings.HasPrefix(folder, base+"/")
}

// ours returns the folder of an import of this module.
func ours(module, importPath string) (folder string, ok bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// name returns the name of a folder in messages.
func name(folder string) string {
	if folder == "" {
		return "the root package"
	}
	return folder
}

func role(folder string) string {
	for _, r := range roles {
		if within(folder, r) {
			return r
		}
	}
	return ""
}

func checkLayers(r *report, module string, f *file) {
	from := lookup(f.folder)
	for _, i := range f.imports {
		folder, ok := ours(module, i.path)
		if !ok {
			continue
		}
		if a, b := role(f.folder), role(folder); a != "" && b != "" && a != b {
			r.at(i.pos, "roles", "%s imports %s, but %s and %s never import one another: they meet in the "+
				"messages of the root package. Send what is needed in a message, or take it as a function value "+
				"that cmd/kintsugi fills in; a test of both belongs in internal/sim, internal/live or internal/launch",
				name(f.folder), name(folder), a, b)
			continue
		}
		to := lookup(folder)
		if from == nil || to == nil || from == to || f.test || allowed(f.folder, folder) {
			continue // a package without an entry is reported once, by its folder
		}
		if to.layer >= from.layer {
			r.at(i.pos, "layers", "%s (layer %d) imports %s (layer %d: %s). Imports go down: move what both need "+
				"to a lower layer, or let a higher one pass it in as a value or a function",
				name(f.folder), from.layer, name(folder), to.layer, to.why)
		}
	}
}

func allowed(from, to string) bool {
	for _, e := range extra {
		if within(from, e.from) && within(to, e.to) {
			return true
		}
	}
	return false
}
