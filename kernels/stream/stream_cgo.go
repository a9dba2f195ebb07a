//go:build cgo && !windows

package stream

/*
#cgo CFLAGS: -std=c11 -O3
#cgo noescape str_move
#cgo nocallback str_move
#include "stream.h"
*/
import "C"

import "unsafe"

func move(parts int, reads, writes [][]byte, way Way) {
	a := C.str_arrays{reads: C.int(len(reads)), writes: C.int(len(writes)), parts: C.size_t(parts)}
	a.past, a.ahead = C.int(way&Past), C.int(way&Ahead)
	for i, x := range reads {
		a.at[i], a.bytes[i] = (*C.uint8_t)(unsafe.SliceData(x)), C.size_t(len(x))
	}
	for i, x := range writes {
		i += len(reads)
		a.at[i], a.bytes[i] = (*C.uint8_t)(unsafe.SliceData(x)), C.size_t(len(x))
	}
	C.str_move(a)
}
