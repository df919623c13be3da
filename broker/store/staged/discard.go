package staged

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
)

const (
	// discardTick is how long a discard waits at most for others; discardBatch of one client do not wait.
	discardTick  = 20 * time.Millisecond
	discardBatch = 256
	// discardClients is how many clients' copies are purged at the same time.
	discardClients = 256
	// guardTick is how often the delivery stream is told at most what it need not keep for this node.
	guardTick = 200 * time.Millisecond
	// doubtWait is how long a release in doubt waits before the stream is searched for it.
	doubtWait = time.Second
	// warnEvery is how often a discard that fails is mentioned at most.
	warnEvery = 10 * time.Second
)

// discards is what waits for the purger.
type discards struct {
	mu     sync.Mutex
	dirty  []*tracker
	strays []stray
	kick   chan struct{}

	// of the purger alone
	warned  time.Time
	telling chan error // an answer about the floor that is under way
	floor   uint64     // that it was told
	told    time.Time
	doubted time.Time
}

// stray is a released copy that no tracker knows: another node held it, and this one released it without asking what is
// held.
type stray struct{ copy, msg uint64 }

func (d *discards) add(t *tracker) {
	d.mu.Lock()
	d.dirty = append(d.dirty, t)
	d.mu.Unlock()
}

func (d *discards) take() ([]*tracker, []stray) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dirty, strays := d.dirty, d.strays
	d.dirty, d.strays = nil, nil
	return dirty, strays
}

// discard lets a copy go, some time. msg is where it was released to; 0: it was not.
func (s *Store) discard(client string, seq, msg uint64) {
	t := s.lease(client)
	defer t.giveBack()
	known, released, queue := t.release(seq, msg)
	switch {
	case queue:
		s.discards.add(t)
	case !known && msg > 0:
		s.discards.mu.Lock()
		s.discards.strays = append(s.discards.strays, stray{seq, msg})
		s.discards.mu.Unlock()
	}
	if released == discardBatch {
		select {
		case s.discards.kick <- struct{}{}:
		default:
		}
	}
}

// purger discards released copies, one round at a time: while one is under way, further discards gather.
func (s *Store) purger() {
	defer close(s.stopped)
	tick := time.NewTicker(discardTick)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			s.purgeRound(true) // so that an orderly end leaves no released copy behind
			return
		case <-tick.C:
		case <-s.discards.kick:
		}
		s.purgeRound(false)
	}
}

// purgeRound discards what can be discarded now; the last one, with pinned copies that have just been pinned.
func (s *Store) purgeRound(last bool) {
	dirty, strays := s.discards.take()
	for len(dirty) > 0 {
		n := min(len(dirty), discardClients)
		s.purgeClients(dirty[:n], last)
		dirty = dirty[n:]
	}
	if len(strays) > 0 {
		s.purgeStrays(strays)
	}
	s.clearDoubts(last)
	s.tellFloor(last)
}

// gather starts n operations that report an error each, and waits for all of them.
func gather(n int, start func(i int, done func(error))) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	wg.Add(n)
	for i := range n {
		start(i, func(err error) {
			errs[i] = err
			wg.Done()
		})
	}
	wg.Wait()
	return errs
}

// purgeClients does a round for some clients, all of them at the same time.
func (s *Store) purgeClients(round []*tracker, last bool) {
	bounds := make([]uint64, len(round))
	errs := gather(len(round), func(i int, done func(error)) {
		if bounds[i] = round[i].bound(); bounds[i] == 0 {
			done(nil)
			return
		}
		s.purging(stagedStream, round[i].subject+".>", bounds[i], done)
	})
	s.warn(errs)
	for i, t := range round {
		if errs[i] == nil && bounds[i] > 0 {
			s.guard.gone(t.gone(bounds[i])...)
		}
		if pins := t.pinned(time.Now(), last); len(pins) > 0 {
			s.purgePins(t, pins)
		}
		if t.rest() {
			s.discards.add(t)
		} else {
			s.retire(t)
		}
	}
}

// purgePins discards by identifier, all of them at the same time.
func (s *Store) purgePins(t *tracker, pins []pin) {
	errs := gather(len(pins), func(i int, done func(error)) {
		s.purging(stagedStream, t.subject+"."+strconv.Itoa(int(pins[i].id))+".*", pins[i].bound, done)
	})
	s.warn(errs)
	gone := make([]pin, 0, len(pins))
	for i, p := range pins {
		if errs[i] == nil {
			gone = append(gone, p)
		}
	}
	s.guard.gone(t.unpin(gone)...)
}

// purgeStrays discards one by one what no tracker knows.
func (s *Store) purgeStrays(strays []stray) {
	errs := gather(len(strays), func(i int, done func(error)) { s.deleteCopy(strays[i].copy, done) })
	s.warn(errs)
	for i, x := range strays {
		if errs[i] == nil {
			s.guard.gone(x.msg)
			continue
		}
		s.discards.mu.Lock()
		s.discards.strays = append(s.discards.strays, x)
		s.discards.mu.Unlock()
	}
}

// warn mentions that discards fail. They are done again in the next round.
func (s *Store) warn(errs []error) {
	err := errors.Join(errs...)
	if err == nil || errors.Is(err, store.ErrClosed) || time.Since(s.discards.warned) < warnEvery {
		return
	}
	s.discards.warned = time.Now()
	for _, err := range errs {
		if err != nil {
			s.log.Warn("discard of staged messages", "error", err)
			return
		}
	}
}

// purge removes the messages of a staged subject below bound (0: all) and waits for it.
func (s *Store) purge(subject string, bound uint64) error {
	return gather(1, func(_ int, done func(error)) { s.purging(stagedStream, subject, bound, done) })[0]
}

// purging is purge that reports to done.
func (s *Store) purging(stream, subject string, bound uint64, done func(error)) {
	body := `{"filter":"` + subject + `"}`
	if bound > 0 {
		body = `{"filter":"` + subject + `","seq":` + strconv.FormatUint(bound, 10) + `}`
	}
	s.calls.send(&nats.Msg{Subject: "$JS.API.STREAM.PURGE." + stream, Data: []byte(body)}, func(data []byte, err error) {
		if err == nil {
			_, _, err = parsePubAck(data)
		}
		done(err)
	})
}

// deleteCopy removes one staged message, if it is there.
func (s *Store) deleteCopy(seq uint64, done func(error)) {
	body := []byte(`{"no_erase":true,"seq":` + strconv.FormatUint(seq, 10) + `}`)
	s.calls.send(&nats.Msg{Subject: "$JS.API.STREAM.MSG.DELETE." + stagedStream, Data: body}, func(data []byte, err error) {
		if err == nil {
			_, _, err = parsePubAck(data)
		}
		var api *apiError
		if !errors.As(err, &api) {
			done(err)
			return
		}
		// It may have been gone before. What the error says depends on the stream's replicas.
		s.read(stagedStream, seq, func(_ *store.Message, found error) {
			if errors.Is(found, store.ErrNotFound) {
				err = nil
			}
			done(err)
		})
	})
}

// tellFloor lets the delivery stream know what it need not keep for this node any more; one call at a time, and the last
// one waits for its answer.
func (s *Store) tellFloor(last bool) {
	d := &s.discards
	if d.telling != nil {
		var err error
		select {
		case err = <-d.telling:
		default:
			if !last {
				return
			}
			err = <-d.telling
		}
		d.telling = nil
		if err == nil {
			s.guard.tell(d.floor)
		} else {
			s.warn([]error{fmt.Errorf("guard: %w", err)})
		}
	}
	floor, news := s.guard.floor()
	if !news || !last && time.Since(d.told) < guardTick {
		return
	}
	answer := make(chan error, 1)
	d.telling, d.floor, d.told = answer, floor, time.Now()
	s.letDeliveriesGo(floor, func(err error) { answer <- err })
	if last {
		<-answer
	}
}
