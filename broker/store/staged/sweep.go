package staged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"inflight/broker/store"
)

const (
	// sweepEvery is how often a node looks for releases that a node which is gone was not done with.
	sweepEvery = DuplicateWindow / 4
	// sweepAge is how old they are: a node that is there has discarded the copy long before.
	sweepAge = DuplicateWindow / 12
	// sweepTrust is for how long after the last sweep the duplicate table is believed. What was released since that sweep
	// began, and sweepAge before, is inside the window.
	sweepTrust = DuplicateWindow / 2
	// sweepDeletes is how many copies are discarded at the same time.
	sweepDeletes = 256
	// currentWait bounds how long a new guard waits for members that have not heard of it.
	currentWait = 2 * time.Second
)

// sweeps are the looks at the guards of all nodes.
type sweeps struct {
	mu      sync.Mutex
	last    time.Time // when the last whole one began
	stopped chan struct{}
}

// guardPrefix begins the names of the guards among the consumers of the delivery stream.
const guardPrefix = "guard_"

// guardName is the name of a node's guard.
func guardName(origin string) string { return guardPrefix + origin }

// openGuard makes the guard of this node, or finds it, and discards every copy whose release is durable.
func (s *Store) openGuard(ctx context.Context) error {
	own := origin(s.cfg.Node)
	if err := s.createGuard(ctx, own); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	answer, err := s.askAgain(nodesRoot+own, []byte(s.cfg.Node), true)
	if err == nil {
		_, _, err = parsePubAck(answer)
	}
	if err != nil {
		return fmt.Errorf("record of this node: %w", err)
	}
	for {
		floor, err := s.sweep(ctx, time.Time{})
		if err == nil {
			s.guard = newGuard(floor)
			s.join(ctx)
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// createGuard makes a node's guard, if there is none. It is a consumer that nobody reads: what is above its floor the
// stream keeps. Before the node releases anything all members must know of it, or they would not keep the message.
func (s *Store) createGuard(ctx context.Context, origin string) error {
	cfg := jetstream.ConsumerConfig{
		Durable:       guardName(origin),
		FilterSubject: msgsRoot + origin + ".>",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
	}
	var found jetstream.Consumer
	err := persist(ctx, func(ctx context.Context) (err error) {
		found, err = s.js.Consumer(ctx, msgsStream, cfg.Durable)
		return err
	})
	if err == nil || !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	err = persist(ctx, func(ctx context.Context) (err error) {
		found, err = s.js.CreateConsumer(ctx, msgsStream, cfg)
		return err
	})
	if err != nil {
		return err
	}
	for end := time.Now().Add(currentWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		info, err := found.Info(ctx)
		if err == nil && everywhere(info.Cluster) {
			break
		}
	}
	return ctx.Err()
}

// everywhere reports whether every member has what the leader has.
func everywhere(c *jetstream.ClusterInfo) bool {
	if c == nil {
		return true
	}
	for _, r := range c.Replicas {
		if !r.Current {
			return false
		}
	}
	return c.Leader != ""
}

// resetGuard lets the stream know that everything up to floor is done with.
func (s *Store) resetGuard(origin string, floor uint64, done func(error)) {
	body := []byte(`{"seq":` + strconv.FormatUint(floor+1, 10) + `}`)
	s.calls.send(&nats.Msg{Subject: "$JS.API.CONSUMER.RESET." + msgsStream + "." + guardName(origin), Data: body}, func(data []byte, err error) {
		if err == nil {
			_, _, err = parsePubAck(data)
		}
		done(err)
	})
}

// sweep discards the copies of everything that the guards of all nodes still keep and that was released before a time;
// the zero time stands for everything, also what this node itself has kept from before its start. It returns where this
// node's floor is.
func (s *Store) sweep(ctx context.Context, before time.Time) (floor uint64, err error) {
	s.sweeps.mu.Lock()
	defer s.sweeps.mu.Unlock()
	began := time.Now()
	own := origin(s.cfg.Node)
	for next := uint64(1); ; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		got, err := s.get(sessionsStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s*"}`, next, nodesRoot))
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return 0, err
		}
		next = got.Message.Seq + 1
		of := strings.TrimPrefix(got.Message.Subject, nodesRoot)
		at, err := s.sweepGuard(ctx, of, before, of != own || before.IsZero())
		if err != nil {
			return 0, fmt.Errorf("what node %.50q released: %w", got.Message.Data, err)
		}
		if of == own {
			floor = at
		} else {
			s.peers.add(of)
		}
	}
	s.sweeps.last = began
	return floor, nil
}

// sweepGuard does that for one guard, which it then moves, if it may.
func (s *Store) sweepGuard(ctx context.Context, origin string, before time.Time, move bool) (floor uint64, err error) {
	floor, pending, err := s.guardState(origin)
	if err != nil || !pending {
		return floor, err
	}
	last, err := s.discardReleased(ctx, origin, floor, math.MaxUint64, before)
	if err != nil || last <= floor || !move {
		return floor, err
	}
	err = gather(1, func(_ int, done func(error)) { s.resetGuard(origin, last, done) })[0]
	return last, err
}

// guardState is where a guard's floor is, and whether the stream has anything above it. A floor above the end of the
// stream, which has then lost messages that were not synced, is put right: what is released next must be kept.
func (s *Store) guardState(origin string) (floor uint64, pending bool, err error) {
	data, err := s.askAgain("$JS.API.CONSUMER.INFO."+msgsStream+"."+guardName(origin), nil, true)
	if err != nil {
		return 0, false, err
	}
	var info struct {
		Error *apiError `json:"error"`
		Floor struct {
			Stream uint64 `json:"stream_seq"`
		} `json:"ack_floor"`
		Pending uint64 `json:"num_pending"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return 0, false, fmt.Errorf("answer of consumer %s: %w", guardName(origin), err)
	}
	if info.Error != nil {
		return 0, false, info.Error
	}
	last, err := s.lastSeq(msgsStream)
	if err == nil && info.Floor.Stream > last {
		err = gather(1, func(_ int, done func(error)) { s.resetGuard(origin, last, done) })[0]
		info.Floor.Stream = last
	}
	return info.Floor.Stream, info.Pending > 0, err
}

// discardReleased discards the staged copies of what the delivery stream has of a node above one sequence, up to another,
// and from before a time, if that is not zero. It returns the last sequence of these. When it fails it can be done again.
func (s *Store) discardReleased(ctx context.Context, origin string, above, upTo uint64, before time.Time) (last uint64, err error) {
	last = above
	var copies []uint64
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		got, err := s.get(msgsStream, fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s%s.>"}`, last+1, msgsRoot, origin))
		switch {
		case errors.Is(err, store.ErrNotFound):
			more = false
		case err != nil:
			return 0, err
		case got.Message.Seq > upTo, !before.IsZero() && got.Message.Time.After(before):
			more = false
		default:
			last = got.Message.Seq
			if err := s.keepRetained(got.Message.Data, last); err != nil {
				return 0, err
			}
			if seq, ok := s.copyOf(got); ok {
				copies = append(copies, seq)
			}
		}
		if len(copies) == sweepDeletes || !more {
			if err := errors.Join(gather(len(copies), func(i int, done func(error)) { s.deleteCopy(copies[i], done) })...); err != nil {
				return 0, err
			}
			copies = copies[:0]
		}
	}
	return last, nil
}

// copyOf returns the sequence of the staged copy that a delivery's message id names.
func (s *Store) copyOf(got *stored) (seq uint64, ok bool) {
	header, err := nats.DecodeHeadersMsg(got.Message.Header)
	if err != nil {
		return 0, false
	}
	epoch, number, _ := strings.Cut(header.Get(jetstream.MsgIDHeader), ".")
	seq, err = strconv.ParseUint(number, 36, 64)
	return seq, err == nil && epoch == s.epoch
}

// clearDoubts finds out which releases the stream has of those whose outcome was not known: a message of its own is
// behind all of them in the stream, and what is before it is looked at.
func (s *Store) clearDoubts(last bool) {
	fails, above := s.guard.doubts()
	if fails == 0 || !last && time.Since(s.discards.doubted) < doubtWait {
		return
	}
	s.discards.doubted = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	var fence uint64
	err := gather(1, func(_ int, done func(error)) {
		s.calls.send(&nats.Msg{Subject: s.released + "fence"}, func(data []byte, err error) {
			if err == nil {
				fence, _, err = parsePubAck(data)
			}
			done(err)
		})
	})[0]
	if err == nil {
		_, err = s.discardReleased(ctx, origin(s.cfg.Node), above, fence, time.Time{})
	}
	if err != nil {
		s.warn([]error{fmt.Errorf("releases in doubt: %w", err)})
		return
	}
	s.guard.cleared(fails, fence)
}

// sweeper sweeps, and looks whether anyone subscribes, until the store ends.
func (s *Store) sweeper() {
	defer close(s.sweeps.stopped)
	tick, look := time.NewTicker(sweepEvery), time.NewTicker(interestEvery)
	defer tick.Stop()
	defer look.Stop()
	soon := false
	for {
		select {
		case <-s.stop:
			return
		case <-s.looking.soon:
			if !soon { // many may go at the same time
				soon = true
				look.Reset(interestSoon)
			}
		case <-look.C:
			soon = false
			look.Reset(interestEvery)
			s.look()
		case <-tick.C:
			if err := s.sweepOld(context.Background()); err != nil && !errors.Is(err, store.ErrClosed) {
				s.log.Warn("releases of nodes that are gone", "error", err)
			}
		}
	}
}

// sweepOld sweeps what other nodes should have been done with.
func (s *Store) sweepOld(ctx context.Context) error {
	_, err := s.sweep(ctx, time.Now().Add(-sweepAge))
	return err
}

// trust makes sure that every release that the duplicate table may have forgotten has no copy any more.
func (s *Store) trust(ctx context.Context) error {
	s.sweeps.mu.Lock()
	recent := time.Since(s.sweeps.last) < sweepTrust
	s.sweeps.mu.Unlock()
	if recent {
		return nil
	}
	return s.sweepOld(ctx)
}
