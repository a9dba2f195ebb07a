// Streams, events, captures and graphs of the emulated driver.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "streams.h"

using emu::failed;
using emu::lock;
using emu::setting;

struct Stream;
typedef std::map<const Stream *, uint64_t> Seen; // by stream of a capture: how many of its works come before, plus 1 for having joined
typedef emu::Work Work;
struct Node {
	Work work;
	const Stream *on;
	unsigned lane; // of the stream
	Seen before;
};
struct Graph {
	std::vector<Node> nodes; // in the order in which they were captured
	const Stream *origin = nullptr;
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool invalid = false; // something was done that a capture does not allow: the whole capture fails, up to its end
	std::map<const Stream *, unsigned> lanes; // of a program, by stream
	emu::Clock clock;                         // of its last launch, after which the next one comes
	std::vector<const Node *> late() const;
};
struct Stream {
	std::deque<std::function<CUresult()>> queue;
	unsigned lane;
	emu::Clock clock; // the works that it was given, and what comes before them
	std::string last = "nothing"; // the last work that it was given
	uint64_t done = 0;                // how many works are done, of all that were ever queued
	std::shared_ptr<Graph> capturing; // new work goes there, and is not done
	bool forked = false;              // the capture belongs to another stream, which must wait for all of this one
	uint64_t captured = 0;            // number of captured works, plus 1 for having joined
	Seen seen;                        // what comes before the next captured work
	uint64_t queued() const { return done + queue.size(); }
	void capture(const std::shared_ptr<Graph> &g, bool fork) { capturing = g, forked = fork, captured = 1, seen.clear(); }
};
struct Event {
	std::shared_ptr<Stream> stream;
	uint64_t at = 0; // the event is over when this many works are done
	std::shared_ptr<Graph> of; // the capture in which it was recorded
	Seen seen; // what comes before it
	emu::Clock clock;
	std::string behind; // the last work before it, for messages
	bool timed = false;        // it can tell its time
};
static std::map<Stream *, std::shared_ptr<Stream>> streams;

std::mutex emu::lock;
CUresult emu::failed;

// Returns the nodes in the order in which those of all streams but the first come as late as possible. On a GPU, nodes
// run concurrently unless they wait.
std::vector<const Node *> Graph::late() const {
	std::map<const Stream *, std::vector<const Node *>> of;
	for (const Node &n : nodes) of[n.on].push_back(&n);
	std::map<const Stream *, size_t> done;
	std::vector<const Node *> order;
	const std::function<void(const Stream *, size_t)> upto = [&](const Stream *s, size_t count) {
		while (done[s] < count) {
			const Node *n = of[s][done[s]++];
			for (auto &b : n->before) upto(b.first, b.second - 1);
			order.push_back(n);
		}
	};
	upto(origin, of[origin].size());
	for (auto &s : of) upto(s.first, s.second.size());
	return order;
}

// Never comes back if it is this process that removes the file.
static void hang() {
	const char *file = getenv("KINTSUGI_EMU_HANG");
	if (file && *file && !std::remove(file))
		for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Does the works of a stream, until upto of all that were ever queued are done. A fault is permanent.
static CUresult run(Stream &s, uint64_t upto) {
	if (int code = setting("KINTSUGI_EMU_FAIL", 0)) failed = code;
	while (s.done < upto && !s.queue.empty()) {
		const auto w = std::move(s.queue.front());
		s.queue.pop_front();
		s.done++;
		if (!failed) failed = w();
	}
	return failed;
}

CUresult emu::drain() {
	for (auto &s : streams) run(*s.second, s.second->queued());
	if (int code = setting("KINTSUGI_EMU_FAIL", 0)) failed = code;
	return failed;
}

// Appends something to a stream that is not being captured.
static CUresult put(Stream *s, std::function<CUresult()> f) {
	s->queue.push_back(std::move(f));
	return setting("KINTSUGI_EMU_SCHEDULE", 3) == 1 ? run(*s, s->queued()) : CUDA_SUCCESS;
}

static CUresult queue(Stream *s, const Work &work) {
	if (failed) return failed;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	s->last = work.name;
	if (s->capturing) {
		if (s->capturing->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		s->captured++;
		s->capturing->nodes.push_back({work, s, s->lane, s->seen});
		return CUDA_SUCCESS;
	}
	auto w = emu::issue(s->lane, s->clock, work);
	s->clock[s->lane] = emu::queued_on(s->lane);
	return put(s, std::move(w));
}

CUresult emu::enqueue(CUstream stream, const Work &work) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	return queue((Stream *)stream, work);
}

bool emu::capturing(CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	return streams.count((Stream *)stream) && ((Stream *)stream)->capturing;
}

// Invalidates a capture after something that it does not allow.
static CUresult invalidate(Graph &g, CUresult why) {
	g.invalid = true;
	return why;
}

CUresult emu::memory_moves() {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	for (auto &s : streams)
		if (s.second->capturing && s.second->capturing->mode != CU_STREAM_CAPTURE_MODE_RELAXED) return invalidate(*s.second->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return CUDA_SUCCESS;
}

ENTRY cuStreamCreate(CUstream *stream, unsigned) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	auto s = std::make_shared<Stream>();
	static unsigned number;
	s->lane = emu::new_lane("stream " + std::to_string(++number));
	streams[s.get()] = s;
	*stream = (CUstream)s.get();
	return CUDA_SUCCESS;
}
ENTRY cuStreamDestroy_v2(CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	run(*s, s->queued());
	streams.erase(s);
	return failed;
}
// Reports whether a stream must ignore this wait for an event, because a test leaves it out.
static bool left_out(const Stream &s, const Event &e) {
	static int waits;
	const int which = setting("KINTSUGI_EMU_UNWAITED", -1);
	if (which < 0) {
		waits = 0;
		return false;
	}
	if (++waits != which && which != 0) return false;
	fprintf(stderr, "emulated driver: wait %d%s: %s for %s, behind %s\n", waits, which ? " is left out" : "", emu::name_of(s.lane).c_str(), emu::name_of(e.stream->lane).c_str(), e.behind.c_str());
	return which;
}

ENTRY cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	const Event e = *(Event *)event;
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (!e.stream) return CUDA_SUCCESS; // it was never recorded
	if (left_out(*s, e)) return CUDA_SUCCESS;
	if (e.of) { // work arrives at a capture in an order that all its streams allow
		if (e.of != e.stream->capturing) return CUDA_ERROR_INVALID_VALUE; // that capture is over
		if (e.of->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		if (!s->capturing) s->capture(e.of, true);
		if (s->capturing != e.of) return invalidate(*e.of, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		for (auto &before : e.seen) s->seen[before.first] = std::max(s->seen[before.first], before.second);
		return CUDA_SUCCESS;
	}
	if (s->capturing) return invalidate(*s->capturing, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	emu::join(s->clock, e.clock);
	return failed ? failed : put(s, [e] { return run(*e.stream, e.at); });
}
ENTRY cuStreamSynchronize(CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (s->capturing) return invalidate(*s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	hang();
	emu::settle(s->clock);
	return run(*s, s->queued());
}
ENTRY cuEventCreate(CUevent *event, unsigned flags) {
	IN_CONTEXT;
	Event *e = new Event();
	e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	*event = (CUevent)e;
	return CUDA_SUCCESS;
}
ENTRY cuEventDestroy_v2(CUevent event) {
	IN_CONTEXT;
	delete (Event *)event;
	return CUDA_SUCCESS;
}
ENTRY cuEventRecord(CUevent event, CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	auto at = streams.find((Stream *)stream);
	if (at == streams.end()) return CUDA_ERROR_INVALID_VALUE;
	const std::shared_ptr<Stream> s = at->second;
	if (s->capturing && s->capturing->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*(Event *)event = {s, s->queued(), s->capturing, s->seen, s->clock, s->last, ((Event *)event)->timed};
	((Event *)event)->seen[s.get()] = s->captured;
	return failed;
}
ENTRY cuEventSynchronize(CUevent event) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	const Event &e = *(Event *)event;
	if (e.of) return CUDA_ERROR_CAPTURED_EVENT;
	hang();
	emu::settle(e.clock);
	return e.stream ? run(*e.stream, e.at) : CUDA_SUCCESS;
}
ENTRY cuStreamBeginCapture_v2(CUstream stream, int mode) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (s->capturing) return CUDA_ERROR_ILLEGAL_STATE;
	s->capture(std::make_shared<Graph>(), false);
	s->capturing->mode = mode, s->capturing->origin = s;
	return failed;
}
ENTRY cuStreamEndCapture(CUstream stream, CUgraph *graph) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	*graph = nullptr;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (!s->capturing) return CUDA_ERROR_ILLEGAL_STATE;
	if (s->forked) return invalidate(*s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	const auto g = s->capturing;
	Seen seen = s->seen;
	bool whole = true;
	for (auto &other : streams)
		if (other.second->capturing == g) {
			whole = whole && (other.first == s || seen[other.first] == other.second->captured);
			other.second->capture(nullptr, false);
		}
	if (g->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!whole) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	*graph = (CUgraph) new Graph(*g);
	return failed;
}
ENTRY cuGraphInstantiateWithFlags(CUgraphExec *program, CUgraph graph, unsigned long long) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Graph *g = new Graph(*(Graph *)graph);
	static unsigned number;
	const std::string name = " in program " + std::to_string(++number);
	for (const Node &n : g->nodes)
		if (!g->lanes.count(n.on)) g->lanes[n.on] = emu::new_lane(emu::name_of(n.lane) + name);
	*program = (CUgraphExec)g;
	return CUDA_SUCCESS;
}
ENTRY cuGraphDestroy(CUgraph graph) {
	delete (Graph *)graph;
	return CUDA_SUCCESS;
}
ENTRY cuGraphExecDestroy(CUgraphExec program) {
	delete (Graph *)program;
	return CUDA_SUCCESS;
}
ENTRY cuGraphLaunch(CUgraphExec program, CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Graph &g = *(Graph *)program;
	Stream *s = (Stream *)stream;
	if (failed) return failed;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	std::vector<const Node *> order;
	for (const Node &n : g.nodes) order.push_back(&n);
	if (setting("KINTSUGI_EMU_SCHEDULE", 3) != 1) order = g.late();
	if (s->capturing) {
		for (const Node *n : order)
			if (CUresult r = queue(s, n->work)) return r;
		return failed;
	}
	// All nodes come after the stream's earlier work and after the previous launch. Otherwise only edges order them.
	emu::join(s->clock, g.clock);
	std::map<const Stream *, uint32_t> begun;
	for (auto &l : g.lanes) begun[l.first] = emu::queued_on(l.second);
	emu::Clock base;
	emu::join(base, s->clock);
	for (const Node *n : order) {
		emu::Clock before = base;
		for (auto &b : n->before)
			if (b.second > 1) before[g.lanes[b.first]] = begun[b.first] + (uint32_t)b.second - 1;
		if (CUresult r = put(s, emu::issue(g.lanes[n->on], before, n->work))) return r;
	}
	for (auto &l : g.lanes) s->clock[l.second] = emu::queued_on(l.second);
	g.clock = s->clock;
	s->last = "a program";
	return failed;
}
ENTRY cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
	if (!((Event *)begin)->timed || !((Event *)end)->timed) return CUDA_ERROR_INVALID_HANDLE;
	*milliseconds = 1; // the emulation measures no time
	std::lock_guard<std::mutex> hold(lock);
	return emu::drain();
}
