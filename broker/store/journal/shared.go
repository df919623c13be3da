package journal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"inflight/broker/store"
)

const (
	// watchEvery is how often a node asks whether those that have members of groups are still there; after sure times without
	// anybody who could answer they are gone.
	watchEvery = 500 * time.Millisecond
)

// share is what a feed has more when it is a member's.
type share struct {
	opts      []byte // store.Subscription as JSON
	transient bool   // the member ends with the feed

	// Under Store.mu.
	seat  pos // of the record that connected it last
	taken pos // the entries up to here are its own, by a record that is applied
	had   pos // the entries up to here were the member's before this feed: its session may have sent them
}

// join makes a feed the one of a member of a group: with a record, because all nodes must know who gets what.
func (f *feed) join(ctx context.Context, sub store.Subscription, durable bool) error {
	opts, err := json.Marshal(sub)
	if err != nil {
		return err
	}
	f.share = &share{opts: opts, transient: !durable || sub.QoS == 0} // what a QoS 0 subscription misses is not kept
	plain, err := f.s.wire.nc.Subscribe(transientGroup+memberName(f.client, f.filter), f.transient)
	if err != nil {
		return err
	}
	f.plain = append(f.plain, plain)
	if err := plain.SetPendingLimits(transientQueue, -1); err != nil {
		return err
	}
	if err := f.s.wire.flush(ctx); err != nil {
		return err
	}
	p, err := f.s.do(ctx, f.seating())
	if err == nil {
		err = f.sit(p)
	}
	if err == nil {
		go f.run()
	}
	return err
}

// memberName is where a member gets its QoS 0 publications.
func memberName(client, filter string) string {
	sum := sha256.Sum256([]byte(client + "\x00" + filter))
	return hex.EncodeToString(sum[:16])
}

// seating is the record that connects the member.
func (f *feed) seating() *record {
	kind := kindSubscribe
	if f.share.transient {
		kind = kindJoin
	}
	r := f.s.of(f.client, kind)
	r.data = f.share.opts
	return r
}

// sit connects the feed with the seat that a record gave it.
func (f *feed) sit(p pos) error {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.st.seats[p]
	switch {
	case s.isClosed:
		return store.ErrClosed
	case sub == nil || sub.sess.client != f.client:
		return errFenced
	}
	if f.share.seat == 0 {
		f.share.had = sub.taken
	}
	f.share.seat, f.share.taken = p, sub.taken
	if f.isStopped() {
		return nil // leave ends it
	}
	f.settleMu.Lock()
	f.number = sub.number
	f.settleMu.Unlock()
	f.sub, sub.feed = sub, f
	f.cursor = min(f.cursor, sub.last) // what the state does not know was never handed out
	s.open[f] = struct{}{}
	f.wake()
	return nil
}

// seatAgain connects a member again that others took for one of a node that is gone, or whose seat is in a part of the
// journal that is lost. Store.mu is held.
func (s *Store) seatAgain(f *feed) {
	if s.isClosed {
		return
	}
	s.wg.Go(func() {
		for !f.isStopped() {
			p, err := s.do(s.life, f.seating())
			if err == nil {
				err = f.sit(p)
			}
			switch {
			case err == nil && f.isStopped():
				f.leaveSeat()
				return
			case err == nil, errors.Is(err, errFenced), errors.Is(err, store.ErrClosed):
				return
			}
			s.log.Warn("member of a shared subscription", "client", f.client, "filter", f.filter, "error", err)
			select {
			case <-s.stop:
			case <-f.stopped:
			case <-time.After(goneWait):
			}
		}
	})
}

// own records that entries are the member's from now on, and reports whether they are: until then they may go to another
// member. It is in the journal before the session has any of them, so every node knows what may have been sent.
func (f *feed) own(items []item) bool {
	s := f.s
	upto := items[len(items)-1].pos
	s.mu.Lock()
	seat, owned := f.share.seat, upto <= f.share.taken
	s.mu.Unlock()
	for !owned {
		r := s.of(f.client, kindTake)
		r.ref, r.data = seat, binary.AppendUvarint(nil, uint64(upto))
		_, err := s.do(s.life, r)
		switch {
		case err == nil:
			owned = true
		case errors.Is(err, errFenced), errors.Is(err, store.ErrClosed), s.life.Err() != nil:
			s.mu.Lock()
			f.cursor = min(f.cursor, items[0].pos-1) // what is still its own, from before, it gets with its next seat
			s.mu.Unlock()
			return false
		default: // it may have effect all the same: what is taken must be sent or given back
			s.log.Warn("member of a shared subscription", "client", f.client, "filter", f.filter, "error", err)
		}
	}
	s.mu.Lock()
	f.share.taken = max(f.share.taken, upto)
	s.mu.Unlock()
	return true
}

// returns gives back entries that this feed took and did not hand over.
func (f *feed) returns(items []item) {
	if f.share == nil || f.qos == 0 {
		return
	}
	var back settled
	for i := range items {
		if items[i].pos > f.share.had {
			back.add(items[i].pos)
		}
	}
	if back.n == 0 {
		return
	}
	r := f.s.of(f.client, kindBack)
	f.s.mu.Lock()
	r.ref, r.data = f.share.seat, back.b
	f.s.mu.Unlock()
	f.s.start(r, op{})
}

// leave ends the seat of a feed that was stopped, after what it has not handed over was given back. A session that does not
// let go of a message keeps it, and with it what the feed took beside it: given back later it could be sent twice.
func (f *feed) leave() {
	select {
	case <-f.over:
	case <-time.After(closeWait):
	}
	f.leaveSeat()
}

func (f *feed) leaveSeat() {
	f.s.mu.Lock()
	seat := f.share.seat
	f.s.mu.Unlock()
	r := f.s.of(f.client, kindPart)
	r.ref = seat
	f.s.start(r, op{})
}

// leaveAll ends the seats of a store that is closed.
func leaveAll(open []*feed) {
	for _, f := range open {
		if f.share != nil {
			f.stop()
		}
	}
	for _, f := range open {
		if f.share != nil {
			f.leave()
		}
	}
}

// inTurn hands a QoS 0 publication to one member of each group that its topic matches. Each node takes turns of its own.
func (s *Store) inTurn(name string, data []byte) error {
	if !s.grouped.Load() {
		return nil
	}
	s.mu.Lock()
	var to []string
	s.st.groupTree.Match(name, func(_ string, g *group) {
		if n := len(g.ring); n > 0 {
			to = append(to, memberName(g.ring[g.quick%n].sess.client, g.filter))
			g.quick = (g.quick + 1) % n
		}
	})
	s.mu.Unlock()
	for _, member := range to {
		if err := s.wire.nc.Publish(transientGroup+member, data); err != nil {
			return ended(err)
		}
	}
	return nil
}

// watch looks after the nodes that have members of groups: of one that is gone the members are not connected any more, and
// what they have not taken is for the others.
func (s *Store) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	missed := make(map[uint64]int)
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		others := s.st.strangers(s.mineIDs)
		s.mu.Unlock()
		before := missed
		missed = make(map[uint64]int)
		for _, author := range others {
			if !s.wire.gone(s.life, author) {
				continue
			}
			if missed[author] = before[author] + 1; missed[author] < sure {
				continue
			}
			missed[author] = 0 // a record that gets lost is repeated
			s.log.Info("a node is gone, and its members of shared subscriptions with it")
			s.start(&record{kind: kindGone, ref: pos(author)}, op{})
		}
	}
}
