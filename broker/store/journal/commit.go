package journal

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"inflight/broker/store"
)

const (
	maxInFlight  = 2         // appends
	maxBatch     = 512 << 10 // bytes of a batch, unless a single record is larger; less where the servers take less
	maxPending   = 64 << 20  // bytes of records that are not committed; with more, whoever brings a message waits
	resendAfter  = time.Second
	maxSpareOps  = 8192                  // room for them that a batch keeps for the next ones
	nackedWait   = 20 * time.Millisecond // before what was refused is sent again
	nackedWaitMx = 500 * time.Millisecond
)

// errFull says that a record waited for its whole time because there is no room in the journal.
var errFull = errors.New("the journal is full")

// op is what waits for a record. One of done and fn is set, or neither.
type op struct {
	done    store.Done
	fn      func(p pos, err error)
	ref     store.Ref      // for done; 0 is the record's own position
	m       *store.Message // that the record brings
	expires int64          // when it is given up, in Unix nanoseconds
}

// report tells the outcome. It is called without locks.
func (o *op) report(p pos, err error) {
	switch {
	case o.fn != nil:
		o.fn(p, err)
	case o.done != nil && o.ref != 0:
		o.done(o.ref, err)
	case o.done != nil && err == nil:
		o.done(store.Ref(p), nil)
	case o.done != nil:
		o.done(0, err)
	}
}

// outcome is an op with what became of it.
type outcome struct {
	op  op
	pos pos
	err error
}

func report(outcomes []outcome) {
	for i := range outcomes {
		outcomes[i].op.report(outcomes[i].pos, outcomes[i].err)
		outcomes[i] = outcome{}
	}
}

// gathering is a batch in the making, or on its way.
type gathering struct {
	number  uint64
	data    []byte
	ops     []op // one for each record
	expired int  // so many of them were given up
	sent    time.Time
}

// committer is the group commit: records of all connections of the node go into one batch while earlier batches are on
// their way. The naive way, an append for each record, pays a round trip through a majority of the nodes for each; the
// naive group commit, a timer, adds its time to every operation of an idle broker. Here the first record goes at once, and
// what comes while it is on its way goes together as soon as it is committed: a batch is as large as the load makes it. A
// batch costs the nodes about as much as a hundred records, mostly for waking each other, so two small ones at a time make
// a loaded broker slower; a full one goes before the one before it is committed.
//
// Invariants:
//   - batches are numbered from 1 in the order in which they are sealed, and the state lets each have effect once and in
//     that order; so sending again is always safe, and a lost outcome is no outcome;
//   - flight holds the sealed batches that are not known to be applied, in order; applied pops the first;
//   - each op is reported once: applied, refused, expired, or closed. An op that expired may still have effect; whoever
//     asked for it must have been told of an error, and so must not have acknowledged.
type committer struct {
	author uint64
	send   func(number uint64, data []byte) error
	settle func(add func(w who, sub pos, deliveries []byte) (room bool)) // drains what was settled
	wake   func()                                                        // makes somebody call ready soon
	limit  int                                                           // bytes of a batch
	most   int                                                           // bytes that are pending

	mu       sync.Mutex
	room     *sync.Cond
	gather   *gathering
	waiting  []*gathering // full ones, in order
	flight   []*gathering
	sealed   uint64 // number of the last sealed batch
	pending  int    // bytes
	space    int64  // bytes that the journal has room for
	blocked  int    // callers that wait for room
	closed   bool
	refusing bool // but what was settled

	nacked   error // why the last append was refused; nil once one is applied
	backoff  time.Duration
	resendAt time.Time // after a refusal
	spare    []*gathering
}

func newCommitter(author uint64, send func(uint64, []byte) error, settle func(add func(who, pos, []byte) bool), wake func()) *committer {
	c := &committer{author: author, send: send, settle: settle, wake: wake, limit: maxBatch, most: maxPending, space: math.MaxInt64}
	c.room = sync.NewCond(&c.mu)
	c.gather = c.fresh()
	return c
}

func (c *committer) fresh() *gathering {
	var g *gathering
	if n := len(c.spare); n > 0 {
		g, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		g = new(gathering)
	}
	g.data = append(g.data, make([]byte, headerSize)...)
	return g
}

// begin takes the lock and returns the buffer to append one record of about size bytes to; end must follow. A record that
// brings a message waits while there is no room, until it expires: that is what pushes back on the client.
func (c *committer) begin(size int, brings bool, expires int64) ([]byte, error) {
	c.mu.Lock()
	for brings && !c.refusing && (c.full() || c.pending > c.most) {
		if time.Now().UnixNano() >= expires {
			full := c.full()
			c.mu.Unlock()
			if full {
				return nil, errFull
			}
			return nil, c.timeout()
		}
		c.blocked++
		c.room.Wait() // tick wakes it
		c.blocked--
	}
	if c.refusing {
		c.mu.Unlock()
		return nil, store.ErrClosed
	}
	if len(c.gather.ops) > 0 && (len(c.gather.data)+size > c.limit || len(c.gather.ops) >= maxRecords/2) {
		c.waiting = append(c.waiting, c.gather)
		c.gather = c.fresh()
	}
	return c.gather.data, nil
}

// end puts the buffer with the record back and releases the lock.
func (c *committer) end(b []byte, o op) {
	c.pending += len(b) - len(c.gather.data)
	c.gather.data = b
	c.gather.ops = append(c.gather.ops, o)
	due := c.due()
	c.mu.Unlock()
	if due {
		c.wake()
	}
}

// due reports whether what has gathered may leave: at once if nothing is under way, else only a full batch.
func (c *committer) due() bool {
	return len(c.flight) == 0 || len(c.waiting) > 0 && len(c.flight) < maxInFlight
}

// ready sends what has gathered, if it may leave. It is called by another goroutine than the one that brings
// records: a connection brings what it has read at once, and all of that goes together.
func (c *committer) ready() {
	c.mu.Lock()
	c.flush()
	c.mu.Unlock()
}

// settleNow sends what was settled, if nothing takes it along.
func (c *committer) settleNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushSettled()
}

func (c *committer) flushSettled() {
	for !c.closed && len(c.flight) == 0 && len(c.waiting) == 0 {
		if c.takeSettled(); len(c.gather.ops) == 0 {
			return
		}
		c.flush()
	}
}

// takeSettled adds records of what was settled to the batch in the making, as far as there is room.
func (c *committer) takeSettled() {
	g := c.gather
	before := len(g.data)
	if before > c.limit/2 {
		return // the next one takes it along
	}
	c.settle(func(w who, sub pos, deliveries []byte) (room bool) {
		r := record{kind: kindSettle, epoch: w.epoch, client: []byte(w.client), ref: sub, data: deliveries}
		g.data = r.append(g.data)
		g.ops = append(g.ops, op{})
		return len(g.data) < c.limit/2 && len(g.ops) < maxRecords/2
	})
	c.pending += len(g.data) - before
}

// flush sends batches while they may leave. The lock is held, so that they leave in the order of their numbers.
func (c *committer) flush() {
	for c.due() {
		g := c.gather
		switch {
		case len(c.waiting) > 0:
			g = c.waiting[0]
			c.waiting = append(c.waiting[:0], c.waiting[1:]...)
		case len(g.ops) > 0:
			c.takeSettled()
			c.gather = c.fresh()
		default:
			return
		}
		c.sealed++
		g.number = c.sealed
		g.data = seal(g.data, c.author, g.number)
		c.flight = append(c.flight, g)
		c.dispatch(g)
	}
}

func (c *committer) dispatch(g *gathering) {
	g.sent = time.Now()
	if err := c.send(g.number, g.data); err != nil {
		c.refuse(err, g.sent)
	}
}

// refuse notes that an append was refused and when to try again.
func (c *committer) refuse(err error, now time.Time) {
	c.nacked = err
	c.backoff = min(max(2*c.backoff, nackedWait), nackedWaitMx)
	c.resendAt = now.Add(c.backoff)
}

// nack takes the refusal of an append.
func (c *committer) nack(number uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.flight {
		if g.number == number {
			c.refuse(err, time.Now())
			return
		}
	}
}

// own returns the messages of a batch of this author that is about to be applied, or nil.
func (c *committer) own(number uint64) func(int) *store.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flight) == 0 || c.flight[0].number != number {
		return nil
	}
	ops := c.flight[0].ops // nobody appends to it any more
	return func(i int) *store.Message {
		if i < len(ops) {
			return ops[i].m
		}
		return nil
	}
}

// applied takes the outcome of a batch that had effect at seq; what was refused of it is in the order of the records. It
// appends what is to be reported.
func (c *committer) applied(number, seq uint64, refused []refusal, out []outcome) []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flight) == 0 || c.flight[0].number != number {
		return out // of an earlier life
	}
	g := c.pop()
	for i := range g.ops {
		o := outcome{op: g.ops[i], pos: at(seq, i)}
		for len(refused) > 0 && refused[0].index < i {
			refused = refused[1:]
		}
		if len(refused) > 0 && refused[0].index == i {
			o.err = refused[0].err
		}
		if o.op.done != nil || o.op.fn != nil {
			out = append(out, o)
		}
		g.ops[i] = op{}
	}
	c.nacked, c.backoff, c.resendAt = nil, 0, time.Time{}
	if len(c.spare) < 4 && cap(g.data) <= 2*c.limit && cap(g.ops) <= maxSpareOps {
		*g = gathering{data: g.data[:0], ops: g.ops[:0]} // of which the ops are empty
		c.spare = append(c.spare, g)
	}
	c.flush()
	c.room.Broadcast()
	return out
}

func (c *committer) pop() *gathering {
	g := c.flight[0]
	c.flight = append(c.flight[:0], c.flight[1:]...)
	c.pending -= len(g.data) - headerSize - crcSize
	return g
}

// again sends everything in flight again: a batch of this author was passed over because the one with number next is
// missing. It reports whether that one is there to be sent.
func (c *committer) again(next uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flight) > 0 && c.flight[0].number > next {
		return false
	}
	c.resend()
	return true
}

func (c *committer) resend() {
	c.resendAt = time.Time{}
	for _, g := range c.flight {
		c.dispatch(g)
	}
}

// lost gives up what is in flight up to a number: it is in the journal, and where nobody knows.
func (c *committer) lost(number uint64, err error, out []outcome) []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.flight) > 0 && c.flight[0].number <= number {
		out = c.pop().give(err, out)
	}
	c.flush()
	c.room.Broadcast()
	return out
}

// rename starts anew under another author: the journal does not know this one any more. What is in flight has an outcome
// that nobody will learn.
func (c *committer) rename(author uint64, err error, out []outcome) []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.flight) > 0 {
		out = c.pop().give(err, out)
	}
	c.author, c.sealed = author, 0
	c.flush()
	c.room.Broadcast()
	return out
}

// give gives all ops up.
func (g *gathering) give(err error, out []outcome) []outcome {
	for i := range g.ops {
		if o := g.ops[i]; o.done != nil || o.fn != nil {
			out = append(out, outcome{op: o, err: err})
		}
		g.ops[i] = op{}
	}
	return out
}

// full reports whether the journal has no room for messages beyond those that are on their way.
func (c *committer) full() bool { return int64(c.pending) >= c.space }

// starved reports whether somebody waits because the journal is full.
func (c *committer) starved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked > 0 && c.full()
}

// setSpace says for how many bytes the journal has room.
func (c *committer) setSpace(bytes int64) {
	c.mu.Lock()
	c.space = bytes
	c.mu.Unlock()
	c.room.Broadcast()
}

func (c *committer) timeout() error {
	if c.nacked != nil {
		return fmt.Errorf("the journal takes nothing: %w", c.nacked)
	}
	return errors.New("no answer from the journal in time")
}

// tick gives up what has expired, sends again what got no answer, and sends what was settled.
func (c *committer) tick(now time.Time, out []outcome) []outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := now.UnixNano()
	for _, g := range c.flight {
		out = c.expire(g, late, out)
	}
	for _, g := range c.waiting {
		out = c.expire(g, late, out)
	}
	out = c.expire(c.gather, late, out)
	switch {
	case len(c.flight) == 0 || c.closed:
	case !c.resendAt.IsZero():
		if !now.Before(c.resendAt) {
			c.resend()
		}
	case now.Sub(c.flight[0].sent) >= resendAfter:
		c.resend()
	}
	c.flushSettled()
	c.room.Broadcast()
	return out
}

// expire gives up the ops of a batch whose time is over. The record stays.
func (c *committer) expire(g *gathering, late int64, out []outcome) []outcome {
	for ; g.expired < len(g.ops); g.expired++ {
		o := &g.ops[g.expired]
		if o.expires > late {
			return out
		}
		if o.done != nil || o.fn != nil {
			out = append(out, outcome{op: *o, err: c.timeout()})
		}
		o.done, o.fn = nil, nil
	}
	return out
}

// refuseNew refuses records from now on, but what was settled.
func (c *committer) refuseNew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing = true
	c.room.Broadcast()
}

// idle reports whether nothing is pending.
func (c *committer) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flight) == 0 && len(c.waiting) == 0 && len(c.gather.ops) == 0
}

// close fails everything, now and from now on.
func (c *committer) close() (out []outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.refusing = true, true
	for _, g := range append(append(c.flight, c.waiting...), c.gather) {
		out = g.give(store.ErrClosed, out)
	}
	c.flight, c.waiting, c.gather = nil, nil, &gathering{}
	c.room.Broadcast()
	return out
}
