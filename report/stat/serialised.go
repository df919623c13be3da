package stat

import (
	"slices"

	"inflight/runner/result"
)

// What counts as flat and as rising. A stop-and-wait path may still gain between window 1 and 2, when the client's
// turn-around overlaps with the broker's work, so flatness is looked for above window 1 first. The limits leave room for
// the noise of short runs; a pipelined path gains far more than they allow.
const (
	flatTail  = 1.5 // largest window over the smallest above 1
	flatWhole = 2.0 // largest window over the smallest
	rises     = 2.0 // how much more than the flat arm the other must gain
	spanOf    = 4   // the windows compared must be that far apart
)

// serialised finds arms that gain nothing from a larger window where another arm gains: the plain-words finding that a
// stop-and-wait path leaves behind.
func serialised(r *result.Result, warn func(code, format string, args ...any)) {
	type line struct {
		QoS, Connections, Payload, Rate int
		Ramp, Sizes                     string
	}
	var lines []line
	windows := map[line][]Point{}
	for _, p := range Points(r) {
		l := line{p.QoS, p.Connections, p.Payload, p.Rate, p.Ramp, p.Sizes}
		if windows[l] == nil {
			lines = append(lines, l)
		}
		windows[l] = append(windows[l], p)
	}
	found := map[string]bool{}
	for _, l := range lines {
		points := windows[l]
		slices.SortFunc(points, func(a, b Point) int { return a.Window - b.Window })
		for _, arm := range r.Arms {
			whole, tail, ok := growth(r, arm.Name, points)
			if !ok || whole > flatWhole || tail > flatTail || found[arm.Name] {
				continue
			}
			for _, other := range r.Arms {
				if w, _, ok := growth(r, other.Name, points); ok && w >= rises && w >= rises*whole {
					found[arm.Name] = true
					warn(CodeSerialised, "%s: throughput does not rise with the window (%.1fx from %d to %d, %s rises %.1fx): this path is serialised",
						arm.Name, whole, points[0].Window, points[len(points)-1].Window, other.Name, w)
					break
				}
			}
		}
	}
}

// growth is the throughput at the largest window over that at the smallest, and over that at the smallest above 1.
func growth(r *result.Result, arm string, points []Point) (whole, tail float64, ok bool) {
	at := func(p Point) float64 {
		if s := Summarise(r, arm, p); s != nil && s.Throughput != nil {
			return s.Throughput.Value
		}
		return 0
	}
	first, last := points[0], points[len(points)-1]
	if last.Window < spanOf*first.Window || at(first) == 0 || at(last) == 0 {
		return 0, 0, false
	}
	whole = at(last) / at(first)
	tail = whole
	for _, p := range points {
		if p.Window > 1 && last.Window >= spanOf*p.Window && at(p) > 0 {
			tail = at(last) / at(p)
			break
		}
	}
	return whole, tail, true
}
