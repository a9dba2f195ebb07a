// The clocks of works, and what works have done to each byte.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>

#include "streams.h"

namespace emu {

struct Done { // a work that is watched
	std::string name;
	unsigned lane;
	uint32_t number;  // in its lane, from 1
	uint32_t settled; // the newest work when the host had waited for this one; 0: the host has not waited for it
	uint32_t turn;    // the turn in which it was done
};
struct Lane {
	std::string name;
	uint32_t queued, settled; // how many works
	std::deque<std::pair<uint32_t, uint32_t>> open; // number and work, of watched works that the host has not waited for
};

static std::deque<Done> works(1); // no work has number 0
static std::deque<Lane> lanes;
static uint32_t turns;

uint32_t under_way;
static const Clock *before_it;
static uint32_t asked, answer;     // precedes keeps its last answer
static uint32_t readers_were, are; // and so does with

enum : uint32_t { SEVERAL = 1u << 31 };
static std::vector<std::vector<uint32_t>> several; // sets of readers
static std::map<std::vector<uint32_t>, uint32_t> numbers;

unsigned new_lane(const std::string &name) {
	lanes.push_back({name, 0, 0, {}});
	return (unsigned)lanes.size() - 1;
}
const std::string &name_of(unsigned lane) { return lanes[lane].name; }
uint32_t queued_on(unsigned lane) { return lanes[lane].queued; }

void join(Clock &c, const Clock &other) {
	for (auto i = c.begin(); i != c.end();) i = i->second > lanes[i->first].settled ? std::next(i) : c.erase(i);
	for (auto &o : other)
		if (o.second > lanes[o.first].settled) c[o.first] = std::max(c[o.first], o.second);
}

void settle(const Clock &c) {
	for (auto &seen : c) {
		Lane &l = lanes[seen.first];
		l.settled = std::max(l.settled, seen.second);
		for (; !l.open.empty() && l.open.front().first <= l.settled; l.open.pop_front()) works[l.open.front().second].settled = (uint32_t)works.size() - 1;
	}
}

// Reports whether a work comes before the one that is under way.
static bool precedes(uint32_t work) {
	if (work == asked) return answer;
	const Done &w = works[work];
	bool yes = w.lane == works[under_way].lane || w.settled && w.settled < under_way;
	if (!yes) {
		const auto c = before_it->find(w.lane);
		yes = c != before_it->end() && c->second >= w.number;
	}
	asked = work, answer = yes;
	return yes;
}

static std::vector<uint32_t> readers_of(uint32_t number) {
	if (number & SEVERAL) return several[number & ~SEVERAL];
	return number ? std::vector<uint32_t>{number} : std::vector<uint32_t>{};
}

// Returns the readers with the work that is under way added, and without those that come before that
// work: a work that comes after it comes after them too.
static uint32_t with(uint32_t readers) {
	if (readers == readers_were && are) return are;
	std::vector<uint32_t> all;
	for (uint32_t r : readers_of(readers))
		if (r != under_way && !precedes(r)) all.push_back(r);
	all.push_back(under_way);
	readers_were = readers, are = under_way;
	if (all.size() > 1) {
		const auto known = numbers.emplace(all, (uint32_t)several.size() | SEVERAL);
		if (known.second) several.push_back(all);
		are = known.first->second;
	}
	return are;
}

static std::string of(const ptx::Array &a) {
	return "array " + std::to_string(a.number) + ", " + std::to_string(a.bytes) + " bytes " + (a.pinned ? "of pinned memory" : "on the device");
}
static std::string bytes_of(size_t lo, size_t hi) { return "bytes " + std::to_string(lo) + " to " + std::to_string(hi); }

static std::string race(const ptx::Array &a, size_t at, size_t end, bool write, size_t b, uint32_t with, bool wrote) {
	const auto its = [&](size_t i) {
		const Past &p = a.past.at[i];
		if (wrote) return p.wrote == with;
		const std::vector<uint32_t> all = readers_of(p.readers);
		return std::find(all.begin(), all.end(), with) != all.end();
	};
	size_t lo = b, hi = b + 1;
	while (lo > 0 && its(lo - 1)) lo--;
	while (hi < a.bytes && its(hi)) hi++;
	const Done &w = works[with];
	return "a race of streams: on " + name_of(works[under_way].lane) + " it " + (write ? "writes " : "reads ") + bytes_of(std::max(at, lo), std::min(end, hi)) + " of " + of(a) +
		", and nothing orders that with " + w.name + " on " + name_of(w.lane) + ", which " + (wrote ? "writes " : "reads ") + bytes_of(lo, hi) + " of it";
}

std::string note(ptx::Array &a, size_t at, size_t bytes, bool write) {
	if (!a.past.at) return "";
	if (a.users.empty() || a.users.back() != under_way) {
		if (a.users.size() > 64) a.users.erase(std::remove_if(a.users.begin(), a.users.end(), [](uint32_t u) { return works[u].settled; }), a.users.end());
		a.users.push_back(under_way);
	}
	for (size_t b = at; b < at + bytes; b++) {
		Past &p = a.past.at[b];
		if (known(p, write)) continue;
		if (p.wrote && !precedes(p.wrote)) return race(a, at, at + bytes, write, b, p.wrote, true);
		if (!write) {
			p.readers = with(p.readers);
			continue;
		}
		if (p.readers & SEVERAL) {
			for (uint32_t r : several[p.readers & ~SEVERAL])
				if (r != under_way && !precedes(r)) return race(a, at, at + bytes, write, b, r, false);
		} else if (p.readers && p.readers != under_way && !precedes(p.readers)) {
			return race(a, at, at + bytes, write, b, p.readers, false);
		}
		p = {under_way, 0};
	}
	return "";
}

std::string user(const ptx::Array &a) {
	for (uint32_t u : a.users)
		if (!works[u].settled) return works[u].name + " on " + name_of(works[u].lane);
	return "";
}

// The source of a copy from pinned memory. Until the copy is done, only works may change it.
struct Source {
	Range range;
	std::string held;
	uint32_t turn; // the last turn when this was queued

	std::string changed() const {
		if (held.empty() || !memcmp(held.data(), (void *)range.at, range.bytes)) return "";
		const ptx::Array *a = array_at(range.at);
		for (size_t i = 0; i < range.bytes; i++) {
			const size_t b = range.at - a->at + i;
			if (held[i] == ((char *)range.at)[i] || a->past.at && works[a->past.at[b].wrote].turn > turn) continue;
			return "the host has changed byte " + std::to_string(b) + " of " + of(*a) + ", since this was queued on " + name_of(works[under_way].lane) + " and before it was waited for";
		}
		return "";
	}
};

static CUresult perform(uint32_t work, const Clock &before, const Source &source, const Work &w) {
	works[work].turn = ++turns;
	under_way = work, before_it = &before, asked = 0, are = 0;
	std::string wrong = source.changed();
	for (const Range &r : w.touches)
		if (wrong.empty()) {
			ptx::Array &a = *array_at(r.at);
			wrong = note(a, r.at - a.at, r.bytes, r.write);
		}
	const CUresult code = wrong.empty() ? w.run() : say(CUDA_ERROR_LAUNCH_FAILED, w.name + ": " + wrong);
	under_way = 0;
	return code;
}

std::function<CUresult()> issue(unsigned lane, const Clock &before, const Work &w) {
	Lane &l = lanes[lane];
	l.queued++;
	if (!interprets()) return w.run;
	const uint32_t work = (uint32_t)works.size();
	works.push_back({w.name, lane, l.queued, 0, 0});
	l.open.push_back({l.queued, work});
	Source source = {{}, "", turns};
	if (w.from_host) source.range = w.touches[0], source.held.assign((char *)source.range.at, source.range.bytes);
	return [=] { return perform(work, before, source, w); };
}

static std::string last;
CUresult say(CUresult code, const std::string &what) {
	fprintf(stderr, "emulated driver: %s\n", what.c_str());
	last = what;
	return code;
}
const char *said() { return last.empty() ? "of the emulated driver" : last.c_str(); }

} // namespace emu
