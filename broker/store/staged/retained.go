package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
	"inflight/broker/topic"
)

// retaining counts the writes of retained messages, so that a reader sees what was asked for before.
type retaining struct {
	mu       sync.Mutex
	started  uint64
	finished uint64
	waiters  []retainWaiter
}

type retainWaiter struct {
	until uint64
	ch    chan struct{}
}

func (r *retaining) start() {
	r.mu.Lock()
	r.started++
	r.mu.Unlock()
}

func (r *retaining) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished++
	rest := r.waiters[:0]
	for _, w := range r.waiters {
		if r.finished >= w.until {
			close(w.ch)
		} else {
			rest = append(rest, w)
		}
	}
	r.waiters = rest
}

// caughtUp is closed once as many writes have finished as have been started by now. The stream answers in order.
func (r *retaining) caughtUp() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan struct{})
	if r.finished >= r.started {
		close(ch)
	} else {
		r.waiters = append(r.waiters, retainWaiter{r.started, ch})
	}
	return ch
}

// retain writes the retained message that goes with a delivery, which the caller sends next, and returns a done that
// reports to the given one once both are durable. The retained message is on its way first: who subscribes too late for
// the delivery finds it. It carries the delivery's id, so that a release that is repeated does not put an old message in
// the place of a newer one.
func (s *Store) retain(delivery *nats.Msg, subject string, m *store.Message, done store.Done) store.Done {
	var mu sync.Mutex
	open := 2
	var failed error
	both := func(ref store.Ref, err error) {
		mu.Lock()
		open--
		if failed == nil {
			failed = err
		}
		last, err := open == 0, failed
		mu.Unlock()
		if last {
			done(ref, err)
		}
	}
	msg := &nats.Msg{Subject: retainedRoot + subject, Data: delivery.Data}
	var ref store.Ref
	if id := delivery.Header.Get(jetstream.MsgIDHeader); id != "" {
		msg.Header = nats.Header{jetstream.MsgIDHeader: {id}}
		_, number, _ := strings.Cut(id, ".")
		n, _ := strconv.ParseUint(number, 36, 64)
		ref = store.Ref(n)
	}
	s.retaining.start()
	s.calls.send(msg, func(data []byte, err error) {
		var seq uint64
		if err == nil {
			seq, _, err = parsePubAck(data)
		}
		if err == nil && len(m.Payload) == 0 {
			// The empty message says that there is none; it need not stay, unless the topic has a newer one.
			s.purging(retainedStream, retainedRoot+subject, seq+1, func(err error) {
				if err != nil && !errors.Is(err, store.ErrClosed) {
					s.log.Warn("removal of a retained message", "error", err)
				}
			})
		}
		s.retaining.finish()
		both(ref, err)
	})
	return both
}

// Retained reads the retained messages one after the other from the stream's leader, so that no more than one of them is
// in memory. A topic that is written again meanwhile moves past the end.
func (s *Store) Retained(ctx context.Context, filter string, end uint64, each func(*store.Message) bool) error {
	fail := func(err error) error { return fmt.Errorf("retained messages of %.100q: %w", filter, ended(err)) }
	if !strings.ContainsAny(filter, "+#") {
		subject, err := s.subject(filter)
		if err != nil {
			return nil // no message has such a topic
		}
		got, err := s.get(retainedStream, `{"last_by_subj":`+quote(retainedRoot+subject)+`}`)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return fail(err)
		}
		if m := s.retainedMessage(got); m != nil && got.Message.Seq <= end {
			each(m)
		}
		return nil
	}
	for _, subject := range topic.SubjectFilter(filter) {
		if len(subject) > s.maxSubject {
			continue
		}
		for next := uint64(1); next <= end; {
			if err := ctx.Err(); err != nil {
				return fail(err)
			}
			got, err := s.get(retainedStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%s}`, next, quote(retainedRoot+subject)))
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			if err != nil {
				return fail(err)
			}
			if got.Message.Seq > end {
				break
			}
			next = got.Message.Seq + 1
			if m := s.retainedMessage(got); m != nil && !each(m) {
				return nil
			}
		}
	}
	return nil
}

// quote writes a subject, which may hold any character of a topic, as JSON.
func quote(subject string) string {
	b, _ := json.Marshal(subject)
	return string(b)
}

func (s *Store) retainedMessage(got *stored) *store.Message {
	m, err := store.Decode(got.Message.Data)
	if err != nil {
		s.log.Error("retained message is corrupt and left out", "subject", got.Message.Subject, "error", err)
		return nil
	}
	if len(m.Payload) == 0 {
		return nil
	}
	return m
}

// RetainedEnd is the last sequence of the stream, once the writes of this node that are under way are in it.
func (s *Store) RetainedEnd(ctx context.Context) (uint64, error) {
	select {
	case <-s.retaining.caughtUp():
	case <-ctx.Done():
		return 0, fmt.Errorf("end of the retained messages: %w", ctx.Err())
	}
	end, err := s.lastSeq(retainedStream)
	if err != nil {
		return 0, fmt.Errorf("end of the retained messages: %w", err)
	}
	return end, nil
}

// lastSeq is the last sequence of a stream.
func (s *Store) lastSeq(stream string) (uint64, error) {
	data, err := s.askAgain("$JS.API.STREAM.INFO."+stream, nil, true)
	if err != nil {
		return 0, err
	}
	var info struct {
		Error *apiError `json:"error"`
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return 0, fmt.Errorf("answer of stream %s: %w", stream, err)
	}
	if info.Error != nil {
		return 0, info.Error
	}
	return info.State.Last, nil
}
