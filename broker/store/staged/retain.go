package staged

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

const (
	// deliveryHeader says, in a retained message, which delivery it goes with.
	deliveryHeader = "Inflight-Delivery"
	// retainedTopics is how many topics are kept in memory that nothing is written to at the moment.
	retainedTopics = 4096
)

// retaining writes retained messages. The retained message of a topic is the one whose delivery has the highest sequence,
// whichever node writes it, and in whatever order: a record names its delivery, and replaces another one only on
// condition that the one that was looked at is still there. A publication of QoS 0 has no delivery in the stream; it
// replaces what its node finds, and takes over its number.
//
// Per topic there is one writer at a time. Of what has gathered meanwhile only the last counts, and is written.
type retaining struct {
	mu     sync.Mutex
	topics map[string]*retainedTopic // by subject
	open   []bool                    // writes in the order in which they were asked for: whether they are not done
	first  uint64                    // number of the first in open
	wait   []retainWaiter
}

type retainWaiter struct {
	until uint64
	ch    chan struct{}
}

// retainedTopic is what waits to be written for one topic, in the order of the calls, and the record that was last seen.
type retainedTopic struct {
	queue   []*retainOp
	writing bool
	known   bool
	record  retainedRecord
}

// retainedRecord is the retained message of a topic in the stream.
type retainedRecord struct {
	seq      uint64 // in INF_retained; 0: there is none
	delivery uint64 // sequence in INF_msgs
}

// retainOp is a message that is to be retained.
type retainOp struct {
	number   uint64
	subject  string
	data     []byte
	empty    bool
	expires  int64 // as in store.Message
	qos0     bool
	ready    bool   // it is delivered, or was not
	failed   bool   // it was not
	delivery uint64 // where
	done     func(error)
}

// ask notes that a message is to be retained, before it is delivered.
func (r *retaining) ask(subject string, data []byte, m *store.Message) *retainOp {
	op := &retainOp{subject: subject, data: data, empty: len(m.Payload) == 0, expires: m.Expires, qos0: m.QoS == 0}
	r.mu.Lock()
	defer r.mu.Unlock()
	op.number = r.first + uint64(len(r.open))
	r.open = append(r.open, true)
	t := r.topics[subject]
	if t == nil {
		if r.topics == nil {
			r.topics = make(map[string]*retainedTopic)
		}
		r.trim()
		t = &retainedTopic{}
		r.topics[subject] = t
	}
	t.queue = append(t.queue, op)
	return op
}

// trim makes room for another topic. r.mu is held.
func (r *retaining) trim() {
	for subject, t := range r.topics {
		if len(r.topics) < retainedTopics {
			return
		}
		if !t.writing && len(t.queue) == 0 {
			delete(r.topics, subject)
		}
	}
}

// finish ends a write. r.mu is held.
func (r *retaining) finish(op *retainOp) {
	r.open[op.number-r.first] = false
	n := 0
	for n < len(r.open) && !r.open[n] {
		n++
	}
	r.open, r.first = r.open[n:], r.first+uint64(n)
	rest := r.wait[:0]
	for _, w := range r.wait {
		if r.first >= w.until {
			close(w.ch)
		} else {
			rest = append(rest, w)
		}
	}
	r.wait = rest
}

// caughtUp is closed once everything is written that was asked for by now.
func (r *retaining) caughtUp() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan struct{})
	if len(r.open) == 0 {
		close(ch)
	} else {
		r.wait = append(r.wait, retainWaiter{r.first + uint64(len(r.open)), ch})
	}
	return ch
}

// batch takes what can be written for a topic: everything before the first message whose delivery is under way. It is
// empty when there is nothing to do, and the writer ends.
func (r *retaining) batch(t *retainedTopic) (batch []*retainOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(t.queue) && t.queue[n].ready {
		n++
	}
	batch, t.queue = t.queue[:n:n], t.queue[n:]
	if n == 0 {
		t.writing = false
	}
	return batch
}

// winner is what a topic's retained message becomes, given its record: nil when it stays.
func winner(record retainedRecord, batch []*retainOp) (op *retainOp, delivery uint64) {
	delivery = record.delivery
	for _, o := range batch {
		switch {
		case o.failed:
		case o.qos0:
			op = o
		case o.delivery > delivery, o.delivery == delivery && record.seq == 0:
			op, delivery = o, o.delivery
		}
	}
	return op, delivery
}

// retain goes on with a message that is to be retained, once it is known what became of its delivery; done is called when
// the retained message of the topic is durable, this one or a later one.
func (s *Store) retain(op *retainOp, delivery uint64, failed bool, done func(error)) {
	r := &s.retaining
	r.mu.Lock()
	op.ready, op.failed, op.delivery, op.done = true, failed, delivery, done
	t := r.topics[op.subject]
	start := !t.writing
	t.writing = true
	r.mu.Unlock()
	if start {
		go s.writeRetained(op.subject, t)
	}
}

// writeRetained writes what there is for a topic.
func (s *Store) writeRetained(subject string, t *retainedTopic) {
	for {
		batch := s.retaining.batch(t)
		if len(batch) == 0 {
			return
		}
		err := s.writeWinner(subject, t, batch)
		s.retaining.mu.Lock()
		for _, op := range batch {
			s.retaining.finish(op)
		}
		s.retaining.mu.Unlock()
		for _, op := range batch {
			op.done(err)
		}
	}
}

func (s *Store) writeWinner(subject string, t *retainedTopic, batch []*retainOp) error {
	for end := time.Now().Add(s.cfg.Timeout); ; {
		if !t.known {
			record, err := s.retainedRecord(subject)
			if err != nil {
				return fmt.Errorf("retained message: %w", err)
			}
			t.record, t.known = record, true
		}
		op, delivery := winner(t.record, batch)
		if op == nil {
			return nil
		}
		seq, err := s.putRetained(op, t.record.seq, delivery)
		if err == nil {
			t.record = retainedRecord{seq, delivery}
			return nil
		}
		t.known = false
		if !wrongSequence(err) || time.Now().After(end) {
			return fmt.Errorf("retained message: %w", err)
		}
	}
}

// retainedRecord reads where the retained message of a topic is.
func (s *Store) retainedRecord(subject string) (retainedRecord, error) {
	got, err := s.get(retainedStream, `{"last_by_subj":`+quote(retainedRoot+subject)+`}`)
	if errors.Is(err, store.ErrNotFound) {
		return retainedRecord{}, nil
	}
	if err != nil {
		return retainedRecord{}, err
	}
	record := retainedRecord{seq: got.Message.Seq}
	if header, err := nats.DecodeHeadersMsg(got.Message.Header); err == nil {
		record.delivery, _ = strconv.ParseUint(header.Get(deliveryHeader), 10, 64)
	}
	return record, nil
}

// putRetained writes a record in place of the one with sequence old. An empty one says that there is none; it stays for a
// while, because an older message that is written late, or was replaced before a crash, must not come back. For the same
// reason a message that expires is removed so long after that.
func (s *Store) putRetained(op *retainOp, old, delivery uint64) (seq uint64, err error) {
	header := nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(old, 10)},
		deliveryHeader:                      {strconv.FormatUint(delivery, 10)},
	}
	switch {
	case op.empty:
		header.Set(jetstream.MsgTTLHeader, removedFor.String())
	case op.expires != 0:
		left := max(time.Until(time.UnixMilli(op.expires)).Round(time.Second), 0)
		header.Set(jetstream.MsgTTLHeader, (left + removedFor).String())
	}
	err = gather(1, func(_ int, done func(error)) {
		s.calls.send(&nats.Msg{Subject: retainedRoot + op.subject, Header: header, Data: op.data}, func(data []byte, err error) {
			if err == nil {
				seq, _, err = parsePubAck(data)
			}
			done(err)
		})
	})[0]
	return seq, err
}

// keepRetained makes sure that a delivery that is to be retained has been: whoever delivered it may have ended in between.
func (s *Store) keepRetained(data []byte, delivery uint64) error {
	m, err := store.Decode(data)
	if err != nil || !m.Retain {
		return nil
	}
	subject, err := s.subject(m.Topic)
	if err != nil {
		return nil // it could not have been delivered either
	}
	op := s.retaining.ask(subject, data, m)
	return gather(1, func(_ int, done func(error)) { s.retain(op, delivery, false, done) })[0]
}
