package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The collector's head room: what may be allocated before the next collection. Go's own rule is as much as is in use, which
// doubles what a backlog costs. Below freeHeap that is left alone, as it costs little and a broker without a backlog is
// there; above it the head room stays what it is there, and from twice that on it is half of what is in use.
const (
	freeHeap       = 24 << 20 // bytes in use
	fullPercent    = 100      // Go's own
	backlogPercent = 50
)

// headroomPercent is the GC percentage for so many bytes in use. It changes in steps, as each change stops the world for a
// moment.
func headroomPercent(live uint64) int {
	const step = 5
	percent := uint64(fullPercent)
	if live > freeHeap {
		percent = max(freeHeap*fullPercent/live, backlogPercent)
	}
	return int((percent + step - 1) / step * step)
}

// tightenHeap makes the collector keep the memory of a backlog small, for the rest of the process' life; a user who has
// told Go what to do is left alone. It is for stores on disk: who keeps messages in memory has chosen speed.
func tightenHeap() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	percent := fullPercent
	afterCollections(func() (again bool) {
		if now := headroomPercent(heapInUse()); now != percent {
			percent = now
			debug.SetGCPercent(percent)
		}
		return true
	})
}

// heapInUse is how many bytes the last collection found in use.
func heapInUse() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	if metrics.Read(s); s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}

// afterCollections calls f after each collection, as long as it wants to be called again. A collection finds that nobody
// holds the object, and that is what tells of it.
func afterCollections(f func() (again bool)) {
	runtime.AddCleanup(new([64]byte), func(f func() bool) {
		if f() {
			afterCollections(f)
		}
	}, f)
}
