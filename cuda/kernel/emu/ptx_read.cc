// Reads the text of PTX line by line: the compiler writes one instruction on each line.
#include <cstdlib>
#include <sstream>

#include "ptx.h"

namespace ptx {

static std::string trimmed(const std::string &s) {
	const size_t lo = s.find_first_not_of(" \t\r"), hi = s.find_last_not_of(" \t\r");
	return lo == std::string::npos ? "" : s.substr(lo, hi - lo + 1);
}

static bool begins(const std::string &s, const char *with) { return s.rfind(with, 0) == 0; }

// The number after the last "[" of a declaration, and the name before it.
static size_t declared(const std::string &line, std::string &name) {
	const size_t bracket = line.rfind('['), space = line.find_last_of(" \t", bracket);
	name = line.substr(space + 1, bracket - space - 1);
	return strtoull(line.c_str() + bracket + 1, nullptr, 10);
}

namespace {

class Reader {
public:
	explicit Reader(Module &m) : module(m) {}
	bool read(const char *text, std::string &error);

private:
	void statement(const std::string &);
	void instruction(std::string);
	void operand(const std::string &, std::vector<int> &into, Instruction &);
	int value(const std::string &);
	void finish();
	bool left_out();
	void fail(const std::string &why) {
		if (problem.empty()) problem = "line " + std::to_string(line) + ": " + why;
	}

	Module &module;
	Kernel *k = nullptr;
	int line = 0, depth = 0, barriers = 0;
	std::string problem;
	std::map<std::string, int> registers, predicates, labels;
	std::map<std::string, u64> places; // of variables, in their memory
	std::map<u64, int> constants;
	std::map<int, std::string> targets; // names of the targets of branches, by instruction
};

} // namespace

bool Reader::read(const char *text, std::string &error) {
	std::istringstream lines(text);
	std::string s;
	while (problem.empty() && std::getline(lines, s)) {
		line++;
		s = trimmed(s.substr(0, s.find("//")));
		if (!s.empty()) statement(s);
	}
	if (problem.empty() && k) fail("the text ends in a kernel");
	error = problem;
	return problem.empty();
}

void Reader::statement(const std::string &s) {
	std::string name;
	if (begins(s, ".visible .entry")) {
		name = trimmed(s.substr(15, s.find('(') - 15));
		k = &module.kernels[name];
		k->name = name;
		registers.clear(), predicates.clear(), labels.clear(), barriers = 0, places.clear(), constants.clear(), targets.clear();
	} else if (!k) {
		if (!begins(s, ".version") && !begins(s, ".target") && !begins(s, ".address_size")) fail("not understood outside of a kernel: " + s);
	} else if (begins(s, ".param")) {
		k->params = declared(s, name);
		places[name] = 0;
	} else if (begins(s, ".maxntid")) {
		unsigned x = 1, y = 1, z = 1;
		sscanf(s.c_str(), ".maxntid %u, %u, %u", &x, &y, &z);
		k->threads = x * y * z;
	} else if (begins(s, ".shared") || begins(s, ".local")) {
		size_t &end = begins(s, ".shared") ? k->shared : k->local;
		const size_t bytes = declared(s, name);
		places[name] = (end + 15) / 16 * 16;
		end = places[name] + bytes;
	} else if (s == "{") {
		depth++;
	} else if (s == "}") {
		if (--depth == 0) finish();
	} else if (s == "(" || s == ")" || begins(s, ".reg") || begins(s, ".pragma") || begins(s, ".minnctapersm")) {
	} else if (s.back() == ':') {
		labels[s.substr(0, s.size() - 1)] = (int)k->code.size();
	} else if (s.back() == ';') {
		instruction(trimmed(s.substr(0, s.size() - 1)));
	} else {
		fail("not understood: " + s);
	}
}

// Commas outside lists separate operands.
static std::vector<std::string> parts(const std::string &s) {
	std::vector<std::string> all;
	std::string part;
	int depth = 0;
	for (char c : s) {
		depth += c == '{' || c == '[', depth -= c == '}' || c == ']';
		if (c == ',' && depth == 0)
			all.push_back(trimmed(part)), part.clear();
		else
			part += c;
	}
	if (!trimmed(part).empty()) all.push_back(trimmed(part));
	return all;
}

static int numbered(std::map<std::string, int> &m, const std::string &name, int &count) {
	const auto known = m.find(name);
	return known != m.end() ? known->second : m[name] = count++;
}

// The register of a name or a constant.
int Reader::value(const std::string &s) {
	if (begins(s, "%p")) return numbered(predicates, s, k->predicates);
	if (s[0] == '%') {
		const int cell = numbered(registers, s, k->cells);
		if (s.find('.') != std::string::npos || s == "%laneid") k->specials[s] = cell;
		return cell;
	}
	u64 bits;
	const auto place = places.find(s);
	char *end = nullptr;
	if (place != places.end()) {
		bits = place->second;
	} else if (begins(s, "0f") || begins(s, "0d")) {
		bits = strtoull(s.c_str() + 2, &end, 16);
	} else {
		bits = s[0] == '-' ? (u64)strtoll(s.c_str(), &end, 0) : strtoull(s.c_str(), &end, 0);
	}
	if (end && *end) fail("not understood: " + s);
	const auto known = constants.find(bits);
	if (known != constants.end()) return known->second;
	constants[bits] = k->cells;
	k->constants[k->cells] = bits;
	return k->cells++;
}

void Reader::operand(const std::string &s, std::vector<int> &into, Instruction &i) {
	const size_t both = s.find('|');
	if (s[0] == '{') {
		for (const std::string &p : parts(s.substr(1, s.size() - 2))) into.push_back(value(p));
	} else if (s[0] == '[') {
		const size_t plus = s.find('+');
		if (plus != std::string::npos) i.offset = strtoll(s.c_str() + plus + 1, nullptr, 0);
		into.push_back(value(trimmed(s.substr(1, std::min(plus, s.size() - 1) - 1))));
	} else if (both != std::string::npos) {
		into.push_back(value(s.substr(0, both)));
		into.push_back(value(s.substr(both + 1)));
	} else {
		into.push_back(value(s));
	}
}

// KINTSUGI_EMU_WITHOUT names a barrier that is left out, by its kernel and its number.
bool Reader::left_out() {
	const char *without = getenv("KINTSUGI_EMU_WITHOUT");
	return without && without == k->name + ":" + std::to_string(barriers++);
}

void Reader::instruction(std::string s) {
	Instruction i;
	i.line = line, i.text = s;
	if (s[0] == '@') {
		i.unless = s[1] == '!';
		const size_t space = s.find_first_of(" \t");
		i.guard = value(s.substr(i.unless ? 2 : 1, space - (i.unless ? 2 : 1)));
		s = trimmed(s.substr(space));
	}
	const size_t space = s.find_first_of(" \t");
	const std::string name = s.substr(0, space);
	std::vector<std::string> operands = space == std::string::npos ? std::vector<std::string>() : parts(s.substr(space));
	if (name == "bra" || name == "bra.uni") {
		i.kind = BRANCH;
		if (operands.size() != 1) return fail("a branch to nowhere");
		targets[(int)k->code.size()] = operands[0];
		k->code.push_back(i);
		return;
	}
	if (name == "ret" || name == "exit") i.kind = LEAVE;
	if (name == "bar.sync" || name == "barrier.sync") {
		i.kind = BARRIER;
		if (operands.size() != 1 || operands[0] != "0") return fail("only barrier 0, of all threads, is known: " + s);
	}
	if (begins(name, "bar") && left_out()) return;
	if (i.kind == PLAIN) {
		const bool list = begins(name, "mov.") && s.find('{') != std::string::npos;
		i.run = operation(list ? name + " list" : name);
		if (!i.run) return fail("an instruction that is not known: " + s);
		if (begins(name, "shfl.sync") || begins(name, "vote.sync") || begins(name, "mma.sync") || name == "bar.warp.sync") i.kind = MEETING;
		// The first operand is the result, unless there is none.
		const bool none = begins(name, "st.") || begins(name, "bar.");
		for (size_t o = 0; o < operands.size(); o++) operand(operands[o], o == 0 && !none ? i.out : i.in, i);
		if (name == "mov.pred" && operands.size() == 2 && operands[1][0] != '%') { // a constant becomes a predicate of its own
			const std::string constant = "%p=" + operands[1];
			i.in = {numbered(predicates, constant, k->predicates)};
		}
	}
	k->code.push_back(i);
}

void Reader::finish() {
	for (const auto &t : targets) {
		const auto l = labels.find(t.second);
		if (l == labels.end()) return fail("no label " + t.second);
		k->code[t.first].target = l->second;
	}
	if (k->code.empty() || k->code.back().kind != LEAVE && k->code.back().kind != BRANCH) return fail("the kernel has no end");
	for (const auto &p : predicates)
		if (begins(p.first, "%p=") && p.first != "%p=0") k->ones.push_back(p.second);
	k = nullptr;
}

std::unique_ptr<Module> read(const char *text, std::string &error) {
	std::unique_ptr<Module> m(new Module);
	return Reader(*m).read(text, error) ? std::move(m) : nullptr;
}

} // namespace ptx
