package runner

import (
	"math"
	"time"

	"inflight/scenarios"
)

// A broker that answers one packet after the other makes a closed loop at QoS 2 come in waves: it works off a window of
// PUBLISH packets, in which time no exchange completes, and then the window of PUBREL packets behind them. A measured time
// that cuts a wave counts too many exchanges or too few, up to all of them; one that holds whole turns of the window counts
// right wherever it begins.
//
// The same is done at every QoS and for every broker; for one that is not serialised a turn is short and nothing changes.
const (
	// maxStretch and stretchTo bound the measured time: four times what the scenario asks for, or that long if it is more.
	// A turn that is longer is not waited for.
	maxStretch = 4
	stretchTo  = 3 * time.Second
	// manyTurns is the number of turns in a measured time at which a part of one no longer matters.
	manyTurns = 50
)

// turns knows how long a turn of the window takes, from the runs so far, and fits measured times to it.
type turns struct {
	seen map[turnKey]work
	last map[turnKey]work // by arm and QoS alone: a first guess for a point that was not run yet
}

type turnKey struct {
	arm   int
	point scenarios.Point
}

// work is an amount of exchanges and the time that they took, the first and the last one included.
type work struct {
	exchanges int64
	took      time.Duration
}

func newTurns() *turns {
	return &turns{seen: map[turnKey]work{}, last: map[turnKey]work{}}
}

// note adds a run: its exchanges, warm-up and drain included, and the time from its start to its last acknowledgement.
func (t *turns) note(arm int, point scenarios.Point, exchanges int64, took time.Duration) {
	if exchanges <= 0 || took <= 0 {
		return
	}
	key := turnKey{arm, point}
	sum := t.seen[key]
	t.seen[key] = work{sum.exchanges + exchanges, sum.took + took}
	t.last[turnKey{arm, scenarios.Point{QoS: point.QoS}}] = work{exchanges, took}
}

// fit stretches the times of a run, as far as is known by now: the measured time to the shortest that holds whole turns, the
// warm-up to one turn, since in the first one no exchange has waited behind the PUBREL packets of another.
func (t *turns) fit(arm int, point scenarios.Point, wanted loadTimes) loadTimes {
	w, ok := t.seen[turnKey{arm, point}]
	if !ok {
		w, ok = t.last[turnKey{arm, scenarios.Point{QoS: point.QoS}}]
	}
	if !ok {
		return wanted
	}
	turn := float64(point.Window*point.Connections) * float64(w.took) / float64(w.exchanges)
	n := math.Ceil(float64(wanted.measured) / turn)
	if n >= manyTurns || n*turn > float64(max(maxStretch*wanted.measured, stretchTo)) {
		return wanted
	}
	return loadTimes{warmup: max(wanted.warmup, time.Duration(turn)), measured: time.Duration(n * turn)}
}

// rate is what the closed loop of an arm reached at a point, messages per second; 0 if it was not measured.
func (t *turns) rate(arm int, point scenarios.Point) float64 {
	w, ok := t.seen[turnKey{arm, point}]
	if !ok {
		return 0
	}
	return perSecond(w.exchanges, w.took)
}
