package staged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// turnAgain is how long a feed waits between two tries to begin anew.
const turnAgain = 100 * time.Millisecond

// turning is what it takes to make the consumer of a feed begin anew.
type turning struct {
	ctx     context.Context // ends with the feed
	end     context.CancelFunc
	workers sync.WaitGroup // at most one at a time

	gate sync.Mutex // held while a worker is added, and while ctx ends: none is added behind the one who waits for them

	mu sync.Mutex // held while the feed's DeliverSubject changes
}

// stop ends what is under way. Nothing begins any more.
func (t *turning) stop() {
	t.gate.Lock()
	t.end()
	t.gate.Unlock()
	t.workers.Wait()
}

// work lets do run, unless stop was called.
func (t *turning) work(do func()) {
	t.gate.Lock()
	defer t.gate.Unlock()
	if t.ctx.Err() == nil {
		t.workers.Go(do)
	}
}

// errTurned says that the consumer sends to another feed by now: of another node.
var errTurned = errors.New("the subscription is another feed's")

// begin lets a consumer send to a feed, and returns the consumer's name: that of cfg, with something after it for one that
// is not durable.
func (s *Store) begin(ctx context.Context, f *feed, cfg jetstream.ConsumerConfig, durable bool) (name string, err error) {
	f.turning.mu.Lock()
	defer f.turning.mu.Unlock()
	name = cfg.Durable
	unique := nuid.Next()
	cfg.DeliverSubject = feedRoot + name + "." + unique
	if !durable {
		name += "_" + unique
		cfg.Name, cfg.Durable, cfg.InactiveThreshold = name, "", orphanAfter
	}
	f.cfg = cfg
	// Interest first, then the consumer: it sends to nobody otherwise.
	if err := f.hear(ctx); err != nil {
		return "", err
	}
	if durable {
		err = s.turn(ctx, f, func(string) bool { return true })
	}
	if !durable || errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err = s.fromNow(&f.cfg); err == nil {
			err = s.create(ctx, f.cfg)
		}
	}
	if err == nil {
		err = s.declare(ctx)
	}
	return name, err
}

// fromNow lets a consumer begin with what is stored after this. It names the sequence: where a consumer is to begin with what
// is new, its leader chooses that when it begins to lead, and tells the others afterwards. If the lead goes on before they
// have heard of it, the next leader chooses anew, and what came meanwhile, after the client was told, is left out.
func (s *Store) fromNow(cfg *jetstream.ConsumerConfig) error {
	last, err := s.lastSeq(msgsStream)
	cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last+1
	return err
}

// hear listens on the feed's DeliverSubject.
func (f *feed) hear(ctx context.Context) error {
	f.mu.Lock()
	round := f.round
	f.mu.Unlock()
	if err := f.listen(f.cfg.DeliverSubject, f.qos == 0, func(m *nats.Msg) { f.stored(round, m) }); err != nil {
		return err
	}
	return f.store.nc.FlushWithContext(ctx)
}

// turn makes a consumer that exists begin anew, at the feed's DeliverSubject. JetStream then sends again exactly what was
// sent and not settled, in order, and what is new after it. The subject must be another one each time: with interest in the
// old one the consumer would go on with what is new at once. ours tells whether the subject that the consumer sends to may
// be left.
//
// That it is sending again is known to the consumer's leader only. If that changes meanwhile, the next one goes on with what
// is new. So the feed must know beforehand what is to come again, and with which number it begins: see awaited.
func (s *Store) turn(ctx context.Context, f *feed, ours func(subject string) bool) error {
	name := f.consumer()
	for asked := false; ; {
		var old jetstream.PushConsumer
		err := persist(ctx, func(ctx context.Context) (err error) {
			old, err = s.js.PushConsumer(ctx, msgsStream, name)
			return err
		})
		if err != nil {
			return err
		}
		next := old.CachedInfo().Config
		if next.DeliverSubject == f.cfg.DeliverSubject {
			return nil
		}
		if !ours(next.DeliverSubject) {
			return errTurned
		}
		if asked {
			// The update was taken and the consumer's leader has not followed: it still saw interest in the old subject.
			// A further update must be another one.
			if err := f.move(ctx); err != nil {
				return err
			}
		}
		asked = false
		if !old.CachedInfo().PushBound {
			f.expect(old.CachedInfo())
			next.DeliverSubject = f.cfg.DeliverSubject
			err := persist(ctx, func(ctx context.Context) error {
				_, err := s.js.UpdatePushConsumer(ctx, msgsStream, next)
				return err
			})
			if asked = err == nil; asked {
				continue // and see
			}
			var api *jetstream.APIError
			if !errors.As(err, &api) || api.ErrorCode != codeConsumerInUse {
				return err
			}
		}
		// The end of the feed that was there before has not reached every node.
		select {
		case <-ctx.Done():
			return fmt.Errorf("an earlier feed of this subscription is still open: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// awaited is what a consumer that begins anew is to send before anything new.
//
// Invariant: of the left messages at or below upTo that are still to come, every one comes before what is above upTo, or was
// settled since the consumer was asked how many they are.
type awaited struct {
	left    int
	upTo    uint64              // sequence
	at      uint64              // of the last one that came
	settled map[uint64]struct{} // since, above at
}

// expect notes what is to come on the DeliverSubject. info is of the consumer while nobody listens to it.
func (f *feed) expect(info *jetstream.ConsumerInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = info.Delivered.Consumer + 1
	f.awaited = awaited{left: info.NumAckPending, upTo: info.Delivered.Stream}
}

// came takes a delivery, and reports false if it is new and something is missing before it.
func (a *awaited) came(seq uint64) bool {
	switch {
	case a.left == 0 || seq <= a.at: // once more, after ackWait
	case seq <= a.upTo:
		a.left--
		a.at = seq
		delete(a.settled, seq)
	case a.left > len(a.settled):
		return false
	default:
		*a = awaited{}
	}
	return true
}

// settle takes the settling of a message, which then need not come.
func (a *awaited) settle(seq uint64) {
	if a.left == 0 || seq <= a.at || seq > a.upTo {
		return
	}
	if a.settled == nil {
		a.settled = make(map[uint64]struct{})
	}
	a.settled[seq] = struct{}{}
}

// consumer is the name of the feed's consumer.
func (f *feed) consumer() string { return cmp.Or(f.cfg.Durable, f.cfg.Name) }

// newRound takes nothing any more of what comes on the DeliverSubject so far. The lock is held.
func (f *feed) newRound() {
	f.round++
	f.next, f.awaited = 1, awaited{}
}

// move changes the DeliverSubject.
func (f *feed) move(ctx context.Context) error {
	f.mu.Lock()
	f.newRound()
	f.mu.Unlock()
	n := len(f.subs) - 1
	_ = f.subs[n].Unsubscribe()
	f.subs = f.subs[:n]
	f.cfg.DeliverSubject = feedRoot + f.consumer() + "." + nuid.Next()
	return f.hear(ctx)
}

// turnLocked makes the consumer begin anew with what is not settled: nothing of what it sends until then is taken. The lock
// is held.
func (f *feed) turnLocked() {
	f.newRound()
	f.turning.work(f.again)
}

// again turns the consumer to another subject, once it can. The consumer must still be this feed's: a node that was cut
// off must not take it from the one that went on with the session.
func (f *feed) again() {
	f.turning.mu.Lock()
	defer f.turning.mu.Unlock()
	used := map[string]bool{f.cfg.DeliverSubject: true}
	for {
		ctx, cancel := context.WithTimeout(f.turning.ctx, f.store.cfg.Timeout)
		err := f.move(ctx)
		used[f.cfg.DeliverSubject] = true
		if err == nil {
			err = f.store.turn(ctx, f, func(subject string) bool { return used[subject] })
		}
		cancel()
		if err == nil || f.turning.ctx.Err() != nil {
			return
		}
		f.store.log.Debug("begin a feed anew", "consumer", f.consumer(), "error", err)
		if errors.Is(err, errTurned) || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
			return // who has it now, or removed it, has ended this session; or the store is closed
		}
		select {
		case <-f.turning.ctx.Done():
			return
		case <-f.store.stop:
			return
		case <-time.After(turnAgain):
		}
	}
}
