package staged

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"inflight/broker/store"
)

const (
	// interestEvery is how often a node looks whether the last subscription is gone, interestSoon how long after one has gone
	// there.
	interestEvery = time.Second
	interestSoon  = 50 * time.Millisecond
	// interestPatience is how long such a look of another node may take before this one takes its place.
	interestPatience = 5 * time.Second
	// probeTries bounds how often the list of consumers is asked for until it shows the probe.
	probeTries = 50
)

// interest says whether anyone may want what is in the delivery stream.
type interest string

// The states of the record. Where there is none, nobody has ever subscribed.
const (
	wanted   interest = "wanted"   // somebody may have subscribed
	leaving  interest = "leaving"  // a node is looking whether nobody has; until it knows, somebody may
	unwanted interest = "unwanted" // nobody has: what is in the stream is there for the guards alone
)

// interestRecord is the record as it was read. Its sequence tells it from every other one.
type interestRecord struct {
	is  interest
	seq uint64 // in INF_sessions; 0: there is no record
}

// interests is what the protocol of that record needs, see [declare] and [leave]. swap writes on condition that the record
// is still that of old, else it returns store.ErrConflict. subscribed reports whether there is a consumer that somebody
// subscribed with; every one that was there before the call counts.
type interests interface {
	read() (interestRecord, error)
	swap(old interestRecord, is interest) (interestRecord, error)
	subscribed(ctx context.Context) (bool, error)
}

// declare makes the record say that somebody subscribes. It comes after the consumer is created and before the client is
// told. Hence, while the record says unwanted, no consumer is there whose client was told: see leave.
func declare(ctx context.Context, in interests) error {
	for {
		rec, err := in.read()
		if err != nil || rec.is == wanted {
			return err
		}
		_, err = in.swap(rec, wanted)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// leave makes the record say that nobody subscribes, if that is so. rec is what it was read as; left says whether that came
// about.
//
// Whoever has read wanted, after its consumer was created, did so before the record became leaving; so its consumer is
// found. Whoever reads leaving or unwanted writes wanted first, and then either this node's last write fails, or it came
// before, and that client has not been told.
func leave(ctx context.Context, in interests, rec interestRecord) (left bool, err error) {
	rec, err = in.swap(rec, leaving)
	if err != nil {
		return false, err
	}
	some, err := in.subscribed(ctx)
	if err != nil {
		return false, err // it stays so until somebody tries again, or subscribes
	}
	next := unwanted
	if some {
		next = wanted
	}
	_, err = in.swap(rec, next)
	return err == nil && !some, err
}

// streamInterest is the record in INF_sessions.
type streamInterest struct{ s *Store }

func (in streamInterest) read() (interestRecord, error) {
	got, err := in.s.get(sessionsStream, interestQuestion)
	return parseInterest(got, err)
}

const interestQuestion = `{"last_by_subj":"` + interestSubject + `"}`

func parseInterest(got *stored, err error) (interestRecord, error) {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return interestRecord{is: unwanted}, nil
	case err != nil:
		return interestRecord{}, fmt.Errorf("record of interest: %w", err)
	}
	rec := interestRecord{is: interest(got.Message.Data), seq: got.Message.Seq}
	if rec.is != unwanted && rec.is != leaving {
		rec.is = wanted
	}
	return rec, nil
}

func (in streamInterest) swap(old interestRecord, is interest) (interestRecord, error) {
	header := nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(old.seq, 10)}}
	rec := interestRecord{is: is}
	answer, err := in.s.askAgainWith(header, interestSubject, []byte(is), false)
	if err == nil {
		rec.seq, _, err = parsePubAck(answer)
	}
	switch {
	case wrongSequence(err):
		return rec, store.ErrConflict
	case err != nil:
		return rec, fmt.Errorf("record of interest: %w", err)
	}
	return rec, nil
}

// subscribed looks at the list of consumers. The member that answers may not have heard of the newest ones. But all members
// are told of them in one order, those of all streams: once it shows a consumer that is made now, the probe, it has heard of
// every one that was there before. The probe is of a stream where one replica in memory will do, which is quickly made.
func (in streamInterest) subscribed(ctx context.Context) (bool, error) {
	s, probe := in.s, "probe_"+nuid.Next()
	err := persist(ctx, func(ctx context.Context) error {
		_, err := s.js.CreateConsumer(ctx, sessionsStream, jetstream.ConsumerConfig{
			Name: probe, FilterSubject: interestSubject, DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy,
			Replicas: 1, MemoryStorage: true, InactiveThreshold: orphanAfter,
		})
		return err
	})
	if err != nil {
		return true, fmt.Errorf("probe for subscriptions: %w", err)
	}
	defer func() {
		s.calls.send(&nats.Msg{Subject: "$JS.API.CONSUMER.DELETE." + sessionsStream + "." + probe}, func([]byte, error) {})
	}()
	for range probeTries {
		names, err := s.consumersOf(sessionsStream)
		if err != nil {
			return true, fmt.Errorf("list of probes: %w", err)
		}
		if slices.Contains(names, probe) {
			names, err = s.consumersOf(msgsStream)
			return slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, guardPrefix) }), err
		}
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true, errors.New("list of subscriptions: it does not show what was just made")
}

// declare tells every node that somebody subscribes; see the function.
func (s *Store) declare(ctx context.Context) error { return declare(ctx, streamInterest{s}) }

// openInterest puts right, at the start, a record that was lost: a kept session may have outlived it.
func (s *Store) openInterest(ctx context.Context) error {
	in := streamInterest{s}
	rec, err := in.read()
	if err != nil || rec.is == wanted {
		return err
	}
	some, err := in.subscribed(ctx)
	if err != nil || !some {
		return err
	}
	return s.declare(ctx)
}

// looking is what a node remembers of its looks at the record.
type looking struct {
	soon chan struct{} // a subscription is gone

	mu    sync.Mutex
	seq   uint64 // of a record that says leaving
	since time.Time
}

// givenUp reports whether the look of another node, which a record tells of, has taken too long.
func (l *looking) givenUp(rec interestRecord, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec.seq != l.seq {
		l.seq, l.since = rec.seq, now
	}
	return now.Sub(l.since) >= interestPatience
}

// look is lookAround within its time.
func (s *Store) look() {
	ctx, cancel := context.WithTimeout(context.Background(), interestPatience)
	defer cancel()
	if err := s.lookAround(ctx); err != nil && !errors.Is(err, store.ErrClosed) {
		s.log.Debug("whether anyone subscribes", "error", err)
	}
}

// lookAround lets the record say that nobody subscribes once that is so.
func (s *Store) lookAround(ctx context.Context) error {
	in := streamInterest{s}
	rec, err := in.read()
	if err != nil || rec.is == unwanted {
		return err
	}
	if rec.is == leaving && !s.looking.givenUp(rec, time.Now()) {
		return nil
	}
	n, err := s.consumerCount()
	if err != nil || n > len(s.peers.list())+1 {
		return err // more than a guard for each node
	}
	if _, err = leave(ctx, in, rec); errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// lookSoon lets the next look not wait.
func (s *Store) lookSoon() {
	select {
	case s.looking.soon <- struct{}{}:
	default:
	}
}

// consumerCount is how many consumers the leader of the delivery stream knows.
func (s *Store) consumerCount() (int, error) {
	info, err := s.streamInfo(msgsStream)
	if err != nil {
		return 0, err
	}
	return info.State.Consumers, nil
}

// letDeliveriesGo tells the delivery stream that it need not keep what this node released, up to floor. The stream then
// lets go of each message by itself, a vote of its members each. Where nobody has subscribed they are purged first, all of
// them by one vote: who subscribes after the record was read is told after that, so nothing up to floor is for it.
func (s *Store) letDeliveriesGo(floor uint64, done func(error)) {
	reset := func() { s.resetGuard(origin(s.cfg.Node), floor, done) }
	question := &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + sessionsStream, Data: []byte(interestQuestion)}
	s.calls.send(question, func(data []byte, err error) {
		var got *stored
		if err == nil {
			got, err = parseStored(data)
		}
		rec, err := parseInterest(got, err)
		if err != nil || rec.is != unwanted {
			reset()
			return
		}
		s.purging(msgsStream, s.released+">", floor+1, func(error) { reset() }) // what is left then goes one by one
	})
}
