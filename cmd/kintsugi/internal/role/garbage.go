package role

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	usualGarbage = 100      // percent of the live heap, as in any Go program
	leastGarbage = 10       // percent
	roomGarbage  = 64 << 20 // bytes
)

// garbagePercent returns by how many percent of what is alive the heap may grow before garbage is
// collected. live is in bytes, and scanned is the part of it that the collector has to read.
//
// By default a heap doubles first. In the processes of a run, what is alive is mostly a few arrays
// as large as the model, so there would be garbage as large as the model and its optimizer's state.
// But those arrays hold no pointers, and the collector does not read them. So there may be as much
// garbage as it has to read, which keeps its work in the usual proportion, or a little.
func garbagePercent(live, scanned uint64) int {
	room := max(roomGarbage, scanned)
	if live <= room {
		return usualGarbage
	}
	return int(max(leastGarbage, usualGarbage*room/live))
}

// BoundGarbage applies garbagePercent after each collection, in a process of a run, unless the user
// has set GOGC. A process may call it for each of its runs.
var BoundGarbage = sync.OnceFunc(func() {
	if os.Getenv("GOGC") != "" {
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	now := usualGarbage
	var collected func(struct{})
	// again arranges that collected is called after the next collection, which frees the object.
	again := func() { runtime.AddCleanup(new(*byte), collected, struct{}{}) }
	collected = func(struct{}) {
		metrics.Read(sample)
		if p := garbagePercent(sample[0].Value.Uint64(), sample[1].Value.Uint64()); p != now {
			debug.SetGCPercent(p)
			now = p
		}
		again()
	}
	again()
})
