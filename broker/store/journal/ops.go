package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"inflight/broker/store"
)

// recordRoom is about what a record takes beside its bytes.
const recordRoom = 64

func (s *Store) expires() int64 { return time.Now().Add(s.cfg.Timeout).UnixNano() }

// start appends a record and returns; o is reported once it is applied.
func (s *Store) start(r *record, o op) {
	o.expires = s.expires()
	size := len(r.data) + len(r.client) + recordRoom
	if err := s.fits(size); err != nil {
		o.report(0, err)
		return
	}
	b, err := s.commit.begin(size, false, 0)
	if err != nil {
		o.report(0, err)
		return
	}
	s.commit.end(r.append(b), o)
}

// do appends a record and waits until it is applied here.
func (s *Store) do(ctx context.Context, r *record) (pos, error) {
	type answer struct {
		p   pos
		err error
	}
	ch := make(chan answer, 1)
	s.start(r, op{fn: func(p pos, err error) { ch <- answer{p, err} }})
	select {
	case a := <-ch:
		return a.p, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// sync waits until this node has applied all that was acknowledged anywhere before the call: a record of its own can only
// come after it. It needs no answer of a leader that may have been deposed without knowing.
func (s *Store) sync(ctx context.Context) (pos, error) { return s.do(ctx, &record{kind: kindSync}) }

// fits reports whether a record can be in a batch.
func (s *Store) fits(size int) error {
	if limit := int(s.wire.nc.MaxPayload()) - headerSize - crcSize; size > limit {
		return fmt.Errorf("it takes %d bytes of the journal, limit %d", size, limit)
	}
	return nil
}

// who names a client in a record.
func (s *Store) who(client string) who {
	s.epochMu.RLock()
	defer s.epochMu.RUnlock()
	if epoch := s.epochs[client]; epoch != 0 {
		return who{epoch: epoch}
	}
	return who{client: client}
}

// of begins a record of a client.
func (s *Store) of(client string, k kind) *record {
	w := s.who(client)
	return &record{kind: k, epoch: w.epoch, client: []byte(w.client)}
}

// Claim implements [store.Claimer]: once it has returned, what this or any other node has under way for the client under
// an earlier claim has taken effect or never will.
func (s *Store) Claim(ctx context.Context, client string) error {
	p, err := s.do(ctx, &record{kind: kindClaim, client: []byte(client)})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	s.epochMu.Lock()
	s.epochs[client] = p
	s.epochMu.Unlock()
	return nil
}

// current waits until what this node knows of a client is all that was acknowledged anywhere. For a client that this node
// has claimed, and no other since, that is so.
func (s *Store) current(ctx context.Context, client string) error {
	if w := s.who(client); w.epoch != 0 {
		s.mu.Lock()
		mine, closed := s.st.epochs[w.epoch] != nil, s.isClosed
		s.mu.Unlock()
		if mine && !closed {
			return nil
		}
	}
	_, err := s.sync(ctx)
	return err
}

// bring appends a record that brings a message: head is what is before the message.
func (s *Store) bring(m *store.Message, client string, head func(b []byte) []byte, o op) {
	o.m, o.expires = m, s.expires()
	size := m.Size() + len(client) + recordRoom
	err := s.fits(size)
	var b []byte
	if err == nil {
		b, err = s.commit.begin(size, true, o.expires)
	}
	if err != nil {
		o.report(0, err)
		return
	}
	s.commit.end(appendMessage(head(b), m), o)
}

// Publish makes a QoS 1 message durable and delivers it. It waits while there is no room for it, see [Config].
func (s *Store) Publish(m *store.Message, done store.Done) {
	s.bring(m, "", func(b []byte) []byte { return append(b, byte(kindPublish)) }, op{fn: func(_ pos, err error) { done(0, err) }})
}

// Hold keeps a QoS 2 message. Its Ref is the position of the record. It waits while there is no room for it.
func (s *Store) Hold(client string, id uint16, m *store.Message, done store.Done) {
	w := s.who(client)
	s.bring(m, w.client, func(b []byte) []byte {
		b = appendWho(append(b, byte(kindHold)), w)
		return binary.BigEndian.AppendUint16(b, id)
	}, op{done: done})
}

// Release turns a held message into a delivery, with a record of a few bytes.
func (s *Store) Release(client string, _ uint16, ref store.Ref, m *store.Message, done store.Done) {
	w := s.who(client)
	o := op{done: done, ref: ref, m: m, expires: s.expires()}
	b, err := s.commit.begin(recordRoom+len(w.client), false, 0)
	if err != nil {
		o.report(0, err)
		return
	}
	b = appendWho(append(b, byte(kindRelease)), w)
	s.commit.end(binary.AppendUvarint(b, uint64(ref)), o)
}

// Fetch reads a held message back.
func (s *Store) Fetch(ref store.Ref, done func(*store.Message, error)) {
	if !s.background(func() { done(s.fetch(pos(ref))) }) {
		done(nil, store.ErrClosed)
	}
}

func (s *Store) fetch(ref pos) (*store.Message, error) {
	ctx, cancel := context.WithTimeout(s.life, s.cfg.Timeout)
	defer cancel()
	return s.lookUp(ctx, func() *msg {
		if h := s.st.holding(ref); h != nil {
			return h.msg
		}
		return nil
	})
}

// lookUp reads a message that find, which is called with mu held, finds in the state. What is not there may only not have
// come here yet. While the message is read, it may be carried to another place, so that one is asked for again.
func (s *Store) lookUp(ctx context.Context, find func() *msg) (*store.Message, error) {
	if s.closed() {
		return nil, store.ErrClosed
	}
	synced := false
	read := s.newReader()
	for last := pos(0); ; {
		s.mu.Lock()
		m := find()
		var p pos
		var body *store.Message
		if m != nil {
			p, body = m.pos, m.body
		}
		s.mu.Unlock()
		switch {
		case body != nil:
			return body, nil
		case m == nil && !synced:
			synced = true
			if _, err := s.sync(ctx); err != nil {
				return nil, err
			}
			continue
		case m == nil:
			return nil, store.ErrNotFound
		case p == 0 || p == last:
			return nil, fmt.Errorf("its bytes are gone from the journal: %w", store.ErrCorrupt)
		}
		got, err := read.message(ctx, p)
		if !errors.Is(err, store.ErrNotFound) {
			return got, err
		}
		last = p
	}
}

// Discard forgets a held message without delivering it.
func (s *Store) Discard(client string, ref store.Ref) {
	r := s.of(client, kindDiscard)
	r.ref = pos(ref)
	s.start(r, op{})
}

// Held lists what is held of a client, oldest first.
func (s *Store) Held(ctx context.Context, client string) ([]store.Held, error) {
	if err := s.current(ctx, client); err != nil {
		return nil, fmt.Errorf("held messages: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.heldOf(client), nil
}

// Forget drops everything that is held for a client.
func (s *Store) Forget(ctx context.Context, client string) error {
	if _, err := s.do(ctx, s.of(client, kindForget)); err != nil {
		return fmt.Errorf("forget held messages: %w", err)
	}
	return nil
}

// PutOutbound keeps what a session has sent and not seen acknowledged.
func (s *Store) PutOutbound(client string, data []byte, done func(error)) {
	r := s.of(client, kindOutbound)
	r.data = data
	s.start(r, op{fn: func(_ pos, err error) {
		if err != nil {
			err = fmt.Errorf("outbound record: %w", err)
		}
		done(err)
	}})
}

// Outbound reads it.
func (s *Store) Outbound(ctx context.Context, client string) ([]byte, error) {
	if err := s.current(ctx, client); err != nil {
		return nil, fmt.Errorf("outbound record: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.st.sessions[client]; sess != nil {
		return bytes.Clone(sess.outbound), nil
	}
	return nil, nil
}

// Again reads a message that was delivered to a durable subscription and not settled.
func (s *Store) Again(client, filter string, seq uint64, done func(*store.Message, error)) {
	started := s.background(func() {
		ctx, cancel := context.WithTimeout(s.life, s.cfg.Timeout)
		defer cancel()
		done(s.lookUp(ctx, func() *msg {
			if sess := s.st.sessions[client]; sess != nil && sess.subs[filter] != nil {
				if e, ok := sess.subs[filter].queue.find(pos(seq)); ok {
					return e.msg()
				}
			}
			return nil
		}))
	})
	if !started {
		done(nil, store.ErrClosed)
	}
}

// background runs a read beside the caller, unless the store is closed.
func (s *Store) background(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return false
	}
	s.wg.Go(f)
	return true
}

// Durability names what a nil error from done promises.
func (s *Store) Durability() string {
	if s.cfg.Sync {
		return "file+sync"
	}
	return "file"
}

func (s *Store) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isClosed
}

// closeWait bounds how long the end of a store, or of a feed, waits for what was settled.
const closeWait = 2 * time.Second

// Close ends the store. What was settled by then is kept, if the journal takes it in time.
func (s *Store) Close() {
	s.mu.Lock()
	if s.isClosed {
		s.mu.Unlock()
		return
	}
	s.isClosed = true
	open := make([]*feed, 0, len(s.open))
	for f := range s.open {
		open = append(open, f)
	}
	s.mu.Unlock()
	leaveAll(open)
	s.commit.refuseNew()
	s.commit.settleNow()
	for end := time.Now().Add(closeWait); !s.commit.idle() && time.Now().Before(end) && !s.wire.nc.IsClosed(); {
		time.Sleep(time.Millisecond)
	}
	for _, f := range open {
		f.stop()
	}
	close(s.stop)
	s.end()
	s.applying.Lock() // no batch is applied any more: its ops are given up
	s.halted = true
	s.applying.Unlock()
	report(s.commit.close())
	s.wire.nc.Close()
	s.wg.Wait()
}
