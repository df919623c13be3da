package library

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"inflight/runner/client"
	"inflight/runner/ledger"
	"inflight/runner/load"
)

// clock is when a run does what, as times since the plan's Epoch.
type clock struct {
	epoch    time.Time
	from, to time.Duration // the measured time
	start    time.Duration // of the run, and of the schedule of an open loop
}

func (c *clock) now() time.Duration { return time.Since(c.epoch) }

// recorder is a set of histograms that several connections share.
type recorder struct {
	sync.Mutex
	service, response *hdrhistogram.Histogram // response: of an open loop only
}

func newRecorder(plan *client.Plan) *recorder {
	r := &recorder{service: client.NewHistogram()}
	if plan.Rate > 0 {
		r.response = client.NewHistogram()
	}
	return r
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	// The value is inside the range then, which is the only error there is.
	_ = h.RecordValue(min(max(int64(d), 0), h.HighestTrackableValue()))
}

// lane is the account of one connection's load: what may be published, what was, and what was acknowledged. Its methods may be
// called from any goroutine.
type lane struct {
	clock
	plan   *client.Plan
	number int
	pace   load.Turn // of an open loop
	quota  int64     // messages that may be published
	topics []string
	body   []byte // of every message, where it is not stamped
	rec    *recorder

	mu      sync.Mutex
	book    *ledger.Book // nil: payloads are not stamped
	next    int64        // sequence number of the next message
	stopped bool         // nothing more is published
	onStop  func()       // called once, without mu, when that is so
	heard   time.Duration
	counts
}

// counts are what one connection did.
type counts struct {
	messages                int64         // acknowledged within the measured time
	published, acknowledged int64         // of the whole run
	lastAck, stop           time.Duration // stop: when publishing ended
	area                    time.Duration // of the measured time, summed over what was outstanding
	late                    int64
	bytes                   int64 // of the payloads of messages
}

func newLane(plan *client.Plan, number int, body []byte, rec *recorder) *lane {
	l := &lane{plan: plan, number: number, body: body, rec: rec}
	l.quota = ledger.MaxSequence
	if plan.Ledger != nil {
		l.book = plan.Ledger.Book(number)
		l.quota = l.book.Room()
	}
	if plan.MaxMessages > 0 {
		n := int64(plan.Connections)
		quota := plan.MaxMessages / n
		if int64(number) < plan.MaxMessages%n {
			quota++
		}
		l.quota = min(l.quota, quota)
	} else if plan.Ledger == nil {
		l.quota = 1 << 62
	}
	l.topics = topics(plan, number)
	l.pace = load.Turn{Pace: plan.Pace(), Number: int64(number), Of: int64(plan.Connections)}
	return l
}

// topics are those of a connection, in their turns.
func topics(plan *client.Plan, number int) []string {
	topic := plan.Topic(number)
	if plan.Topics <= 1 {
		return []string{topic}
	}
	var list []string
	for i := range plan.Topics {
		list = append(list, topic+"/"+strconv.Itoa(i))
	}
	return list
}

// begin sets the times of the run.
func (l *lane) begin(c clock, onStop func()) {
	l.clock, l.onStop, l.heard = c, onStop, c.now()
}

// instant is when an open loop wants a message written.
func (l *lane) instant(seq int64) time.Duration { return l.start + l.pace.At(seq) }

// size is that of message seq, in bytes.
func (l *lane) size(seq int64) int {
	if n := int64(len(l.plan.Sizes)); n > 0 {
		return l.plan.Sizes[(seq+int64(l.number)*client.SizesApart)%n]
	}
	return l.plan.Payload
}

// take returns the sequence number of the next message once it is to be published; ok is false when there is none any more.
func (l *lane) take(ctx context.Context) (seq int64, ok bool) {
	l.mu.Lock()
	now, at := l.now(), time.Duration(0)
	if l.pace.Open() {
		at = l.instant(l.next)
	}
	if l.stopped || ctx.Err() != nil || l.next >= l.quota || max(now, at) >= l.to {
		l.mu.Unlock()
		l.end()
		return 0, false
	}
	seq = l.next
	l.next++
	last := l.next >= l.quota
	l.mu.Unlock()
	if at > now {
		timer := time.NewTimer(at - now)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done(): // the run has failed: what is counted no longer matters
			return 0, false
		}
	}
	if last {
		l.end()
	}
	return seq, true
}

// end stops publishing. What take has given out is still published.
func (l *lane) end() {
	l.mu.Lock()
	first := !l.stopped
	if first {
		l.stopped, l.stop = true, l.now()
	}
	l.mu.Unlock()
	if first {
		l.onStop()
	}
}

// payload is what message seq carries; buf is stamped and returned when there is a ledger.
func (l *lane) payload(buf []byte, seq int64) []byte {
	if l.book == nil {
		return l.body[:l.size(seq)]
	}
	buf = buf[:l.size(seq)]
	if len(buf) >= ledger.TimedSize {
		l.book.StampAt(buf, seq, l.now())
	} else {
		l.book.Stamp(buf, seq)
	}
	return buf
}

// buffer is room for a message; nil when all of them carry the same.
func (l *lane) buffer() []byte {
	if l.book == nil {
		return nil
	}
	return append([]byte(nil), l.body...)
}

func (l *lane) topic(seq int64) string { return l.topics[seq%int64(len(l.topics))] }

// sent notes that message seq is about to be published, and returns the time.
func (l *lane) sent(seq int64) (now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now = l.now()
	if l.published == l.acknowledged {
		l.heard = now // nothing was owed
	}
	l.published++
	if l.book != nil {
		l.book.Published(seq)
	}
	if l.pace.Open() && now > l.from && now <= l.to && now-l.instant(seq) > client.LateAfter {
		l.late++
	}
	return now
}

// done notes that message seq, published at sent, was acknowledged.
func (l *lane) done(seq int64, sent time.Duration) {
	l.mu.Lock()
	now := l.now()
	l.acknowledged++
	l.lastAck, l.heard = now, now
	if l.book != nil {
		l.book.Acknowledged(seq)
	}
	l.area += l.within(sent, now)
	measured := now > l.from && now <= l.to
	if measured {
		l.messages++
		l.bytes += int64(l.size(seq))
	}
	l.mu.Unlock()
	at := time.Duration(-1)
	if l.pace.Open() {
		at = l.instant(seq)
	}
	response := at >= l.from && at < l.to
	if !measured && !response {
		return
	}
	l.rec.Lock()
	defer l.rec.Unlock()
	if measured {
		record(l.rec.service, now-sent)
	}
	if response {
		record(l.rec.response, now-at)
	}
}

// abandon notes that message seq, published at sent, was not acknowledged by the end.
func (l *lane) abandon(sent time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.area += l.within(sent, l.now())
}

// within is the part of a time that lies in the measured time.
func (l *lane) within(from, to time.Duration) time.Duration {
	return max(0, min(to, l.to)-max(from, l.from))
}

// silence is for how long nothing has been acknowledged although something is outstanding; 0 if nothing is.
func (l *lane) silence() (silent time.Duration, outstanding int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if outstanding = l.published - l.acknowledged; outstanding == 0 {
		return 0, 0
	}
	return l.now() - l.heard, outstanding
}

func (l *lane) soFar() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.published
}

// missed is how many messages of an open loop were due in the measured time and not published by its end.
func (l *lane) missed() int64 {
	if !l.pace.Open() {
		return 0
	}
	return max(0, min(l.pace.Due(l.to-1-l.start), l.quota)-l.published)
}

// due is how many messages the schedule of a plan wants published by a time since the run began, in all; 0 without one.
func due(plan *client.Plan, since time.Duration) int64 {
	pace := load.Turn{Pace: plan.Pace(), Of: 1}
	if !pace.Open() {
		return 0
	}
	if plan.Duration > 0 {
		since = min(since, plan.Warmup+plan.Duration-1)
	}
	n := pace.Due(since)
	if plan.MaxMessages > 0 {
		n = min(n, plan.MaxMessages)
	}
	return n
}
