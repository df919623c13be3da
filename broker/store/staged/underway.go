package staged

import "math"

// underway knows how low the sequence of a message can be that was sent to a stream and is not acknowledged: it will be
// above every sequence that was acknowledged before it was sent. Its owner locks.
type underway struct {
	highest uint64  // acknowledged sequence
	first   uint64  // number of the first in waiting
	waiting []asked // in the order in which they were sent
}

// asked is a message that was sent, and not answered unless one before it is not.
type asked struct {
	floor    uint64 // its sequence will be above it
	answered bool
}

// sent notes a message before it leaves and numbers it.
func (u *underway) sent() (number uint64) {
	u.waiting = append(u.waiting, asked{floor: u.highest})
	return u.first + uint64(len(u.waiting)) - 1
}

// arrived notes the sequence of a message, 0 when it has none, and returns what it was known to be above.
func (u *underway) arrived(number, seq uint64) (floor uint64) {
	a := &u.waiting[number-u.first]
	a.answered, floor = true, a.floor
	n := 0
	for n < len(u.waiting) && u.waiting[n].answered {
		n++
	}
	u.waiting, u.first = u.waiting[n:], u.first+uint64(n)
	u.highest = max(u.highest, seq)
	return floor
}

// limit is the sequence up to which nothing under way can come any more.
func (u *underway) limit() uint64 {
	if len(u.waiting) == 0 {
		return math.MaxUint64
	}
	return u.waiting[0].floor
}

func (u *underway) idle() bool { return len(u.waiting) == 0 }
