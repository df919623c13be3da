package staged

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

// busyPause is how long a record is left that its stream's leader does not take yet.
const busyPause = 10 * time.Millisecond

// outbounds are the outbound records that this node writes, one of a client at a time.
//
// A record replaces the one that this node read or wrote last, and no other: so one that comes late, from a node that
// stood still or gave up waiting, cannot undo what the node that went on with the session has written since. Whether a
// record was stored that nobody answered for is looked up before the next one.
//
// There is an entry for each kept session that this node has served, until the session ends here or the node does.
type outbounds struct {
	mu      sync.Mutex
	records map[string]*outRecord // by Client Identifier
}

// outRecord is what is known of a client's record. The step that is under way owns all but steps.
type outRecord struct {
	client string
	steps  []func() // the first one is under way

	known   bool
	last    uint64 // sequence of the record that the next one replaces; 0: there is none
	doubt   bool   // what was sent last may be stored and may not
	doubted []byte
}

// do runs a step once those before it are over. The step ends with a call of over.
func (o *outbounds) do(client string, step func(r *outRecord)) {
	o.mu.Lock()
	r := o.records[client]
	if r == nil {
		r = &outRecord{client: client}
		o.records[client] = r
	}
	r.steps = append(r.steps, func() { step(r) })
	alone := len(r.steps) == 1
	o.mu.Unlock()
	if alone {
		step(r)
	}
}

// over ends a step.
func (o *outbounds) over(r *outRecord) {
	o.mu.Lock()
	r.steps = r.steps[1:]
	var next func()
	if len(r.steps) > 0 {
		next = r.steps[0]
	} else if !r.known {
		delete(o.records, r.client)
	}
	o.mu.Unlock()
	if next != nil {
		next()
	}
}

// PutOutbound writes the record as the last value of the client's subject; an empty one says that there is none.
func (s *Store) PutOutbound(client string, data []byte, done func(error)) {
	s.outbounds.do(client, func(r *outRecord) {
		finish := func(err error) {
			if len(data) == 0 {
				r.known = false // the session ends: what comes next is of another one
			}
			if err != nil {
				err = fmt.Errorf("outbound record: %w", err)
			}
			s.outbounds.over(r)
			done(err)
		}
		put := func() { s.putOutbound(r, data, finish) }
		if r.known && !r.doubt && len(data) > 0 {
			put()
			return
		}
		s.lastOutbound(client, func(seq uint64, found []byte, err error) {
			switch {
			case err != nil:
				finish(err)
				return
			case len(data) == 0 && len(found) == 0:
				finish(nil)
				return
			case len(data) == 0, !r.known, bytes.Equal(found, r.doubted):
				r.known, r.last = true, seq
			}
			r.doubt, r.doubted = false, nil
			put()
		})
	})
}

// putOutbound writes a record in place of the last one. The stream's leader refuses one also while it is not done with the last
// one itself, or is new and has not got to it: nothing is stored then, and the record is written again.
func (s *Store) putOutbound(r *outRecord, data []byte, done func(error)) {
	s.replaceOutbound(r, data, time.Now().Add(s.cfg.Timeout), done)
}

func (s *Store) replaceOutbound(r *outRecord, data []byte, end time.Time, done func(error)) {
	msg := &nats.Msg{Subject: outboundRoot + hash(r.client), Data: data, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(r.last, 10)},
	}}
	if len(data) == 0 {
		msg.Header.Set(jetstream.MsgTTLHeader, removedFor.String())
	}
	s.calls.send(msg, func(answer []byte, err error) {
		var seq uint64
		if err == nil {
			seq, _, err = parsePubAck(answer)
		}
		switch {
		case err == nil:
			r.last = seq
			done(nil)
		case wrongSequence(err):
			s.lastOutbound(r.client, func(seq uint64, _ []byte, err error) {
				switch {
				case err != nil:
					done(err)
				case seq > r.last, seq == 0 && r.last > 0, time.Now().After(end):
					done(store.ErrConflict)
				default:
					time.AfterFunc(busyPause, func() { s.replaceOutbound(r, data, end, done) })
				}
			})
		default:
			r.doubt, r.doubted = true, data
			done(err)
		}
	})
}

// Outbound reads the record from the leader. From here on this node replaces it.
func (s *Store) Outbound(_ context.Context, client string) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	ch := make(chan answer, 1)
	s.outbounds.do(client, func(r *outRecord) {
		s.lastOutbound(client, func(seq uint64, data []byte, err error) {
			if err == nil {
				r.known, r.last, r.doubt, r.doubted = true, seq, false, nil
			}
			s.outbounds.over(r)
			ch <- answer{data, err}
		})
	})
	a := <-ch
	if a.err != nil {
		return nil, fmt.Errorf("outbound record: %w", a.err)
	}
	return a.data, nil
}

// lastOutbound reads a client's record and its sequence; 0 when there is none.
func (s *Store) lastOutbound(client string, done func(seq uint64, data []byte, err error)) {
	body := []byte(`{"last_by_subj":"` + outboundRoot + hash(client) + `"}`)
	s.calls.send(&nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + sessionsStream, Data: body}, func(answer []byte, err error) {
		var got *stored
		if err == nil {
			got, err = parseStored(answer)
		}
		switch {
		case errors.Is(err, store.ErrNotFound):
			done(0, nil, nil)
		case err != nil:
			done(0, nil, err)
		default:
			done(got.Message.Seq, got.Message.Data, nil)
		}
	})
}

// Again reads a message of the delivery stream.
func (s *Store) Again(_, _ string, seq uint64, done func(*store.Message, error)) {
	s.read(msgsStream, seq, done)
}

// read gets one message by its sequence from the leader of a stream.
func (s *Store) read(stream string, seq uint64, done func(*store.Message, error)) {
	if seq == 0 {
		done(nil, store.ErrNotFound)
		return
	}
	body := []byte(`{"seq":` + strconv.FormatUint(seq, 10) + `}`)
	s.calls.send(&nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: body}, func(data []byte, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		got, err := parseStored(data)
		if err != nil {
			done(nil, fmt.Errorf("read from stream %s: %w", stream, err))
			return
		}
		done(store.Decode(got.Message.Data))
	})
}
