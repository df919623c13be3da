package staged

import (
	"errors"
	"testing"

	"inflight/broker/store"
	"inflight/broker/store/storetest"
)

// A hold that becomes durable after its client has gone on with another store is not taken for a pending exchange.
func TestLateHold(t *testing.T) {
	t.Parallel()
	m := single(t)
	gone := storetest.NewEnv(t, m.open(t))
	here, next := gone.View(m.open(t)), gone.View(m.open(t))
	pending := store.Held{ID: 1, Ref: gone.Hold(1, gone.Msg(2, "PUBREC was sent"))}
	here.WantHeld("what was held in time", pending)
	// The client sends again what it has no PUBREC for, completes it, and uses the identifier for another message.
	for _, payload := range []string{"A", "B"} {
		msg := here.Msg(2, payload)
		here.Release(7, here.Hold(7, msg), msg)
	}
	msg := here.Msg(2, "C")
	here.Release(8, here.Hold(8, msg), msg)
	seven := store.Held{ID: 7, Ref: here.Hold(7, here.Msg(2, "D"))}
	gone.Hold(7, gone.Msg(2, "A"))
	gone.Hold(8, gone.Msg(2, "C"))
	here.WantHeld("here", pending, seven)
	awaitStaged(t, here.S.(*Store), here.Client, 2)
	gone.Hold(7, gone.Msg(2, "A"))
	next.WantHeld("on the next node", pending, seven)
	here.Hold(7, here.Msg(2, "late"))
	next.WantHeld("and nothing of the one before", pending, seven)
	// Back at the first one, what it sent before its client left counts no more than it did; what it sends now does.
	gone.WantHeld("back", pending, seven)
	nine := store.Held{ID: 9, Ref: gone.Hold(9, gone.Msg(2, "E"))}
	gone.WantHeld("what was sent since", pending, seven, nine)
	// With the session the record goes: the next session is another one.
	if err := gone.S.Forget(starting(t), gone.Client); err != nil {
		t.Fatal(err)
	}
	one := store.Held{ID: 1, Ref: here.Hold(1, here.Msg(2, "a new session"))}
	next.WantHeld("of the new session", one)
}

// What a will's publisher holds counts, whoever serves the session.
func TestLateWill(t *testing.T) {
	t.Parallel()
	m := single(t)
	a := storetest.NewEnv(t, m.open(t))
	b := a.View(m.open(t))
	a.WantHeld("nothing")
	will := store.Held{ID: 0, Ref: b.Hold(0, b.Msg(2, "will"))}
	a.WantHeld("the will", will)
}

// Holds of a store's own that nobody answered for are waited for; nothing of that stays.
func TestLandedHolds(t *testing.T) {
	t.Parallel()
	s := single(t).open(t)
	e := storetest.NewEnv(t, s)
	s.lateHolds.add()
	e.WantHeld("nothing")
	if s.lateHolds.failed != s.lateHolds.cleared {
		t.Error("they would be waited for again")
	}
	if got, err := s.get(stagedStream, `{"seq":1,"next_by_subj":">"}`); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v, %v is staged", got, err)
	}
}
