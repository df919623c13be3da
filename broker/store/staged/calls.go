package staged

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"inflight/broker/store"
)

// maxCalls bounds the requests that are waiting for an answer, over all connections of the node. Each connection's own
// window bounds it first.
const maxCalls = 1 << 20

// calls matches JetStream's answers to requests without a goroutine or a timer for each: a table of open requests, one
// wildcard subscription, one sweep for time-outs.
type calls struct {
	nc      *nats.Conn
	prefix  string
	sub     *nats.Subscription
	timeout time.Duration

	mu     sync.Mutex
	table  []call
	free   []uint32
	closed bool

	lost chan nats.Status // the connection was lost
	stop chan struct{}
	done chan struct{}
}

// errLost fails what a lost connection leaves open: its answers go to nobody, and its effects may come or not.
var errLost = errors.New("the connection to NATS is lost")

type call struct {
	gen      uint32 // counts the uses of this entry: an answer to an earlier one is ignored
	deadline time.Time
	fn       func(data []byte, err error)
}

func newCalls(nc *nats.Conn, timeout time.Duration) (*calls, error) {
	c := &calls{nc: nc, prefix: nc.NewInbox() + ".", timeout: timeout, stop: make(chan struct{}), done: make(chan struct{})}
	sub, err := nc.Subscribe(c.prefix+"*", c.answer)
	if err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	c.sub = sub
	c.lost = nc.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED)
	go c.sweep()
	return c, nil
}

// send publishes msg and hands the answer to fn, exactly once, from another goroutine or, when it cannot be sent, this
// one.
func (c *calls) send(msg *nats.Msg, fn func(data []byte, err error)) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		fn(nil, store.ErrClosed)
		return
	}
	var i uint32
	if n := len(c.free); n > 0 {
		i, c.free = c.free[n-1], c.free[:n-1]
	} else if len(c.table) < maxCalls {
		i = uint32(len(c.table))
		c.table = append(c.table, call{})
	} else {
		c.mu.Unlock()
		fn(nil, fmt.Errorf("%d requests are waiting for the store", maxCalls))
		return
	}
	e := &c.table[i]
	e.gen++
	e.fn, e.deadline = fn, time.Now().Add(c.timeout)
	token := uint64(e.gen)<<32 | uint64(i)
	c.mu.Unlock()

	msg.Reply = c.prefix + strconv.FormatUint(token, 36)
	if err := c.nc.PublishMsg(msg); err != nil {
		if errors.Is(err, nats.ErrReconnectBufExceeded) { // nothing is kept for later
			err = errLost
		}
		c.finish(token, nil, fmt.Errorf("publish to %s: %w", msg.Subject, err))
	}
}

// take removes the open request that token names.
func (c *calls) take(token uint64) func([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := uint32(token)
	if int(i) >= len(c.table) || c.table[i].gen != uint32(token>>32) || c.table[i].fn == nil {
		return nil
	}
	fn := c.table[i].fn
	c.table[i].fn = nil
	c.free = append(c.free, i)
	return fn
}

func (c *calls) finish(token uint64, data []byte, err error) {
	if fn := c.take(token); fn != nil {
		fn(data, err)
	}
}

func (c *calls) answer(m *nats.Msg) {
	token, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 36, 64)
	if err != nil {
		return
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		c.finish(token, nil, nats.ErrNoResponders)
		return
	}
	c.finish(token, m.Data, nil)
}

// sweep fails requests that got no answer in time, and all that are open when the connection is lost.
func (c *calls) sweep() {
	defer close(c.done)
	defer c.nc.RemoveStatusListener(c.lost)
	tick := time.NewTicker(c.timeout / 20)
	defer tick.Stop()
	lost := c.lost
	for {
		select {
		case <-c.stop:
			return
		case _, open := <-lost:
			if !open {
				lost = nil
			}
			c.fail(errLost, func(*call) bool { return true })
		case now := <-tick.C:
			c.fail(fmt.Errorf("no answer from the store within %v", c.timeout), func(e *call) bool { return now.After(e.deadline) })
		}
	}
}

func (c *calls) fail(err error, which func(*call) bool) {
	c.mu.Lock()
	var fns []func([]byte, error)
	for i := range c.table {
		if e := &c.table[i]; e.fn != nil && which(e) {
			fns = append(fns, e.fn)
			e.fn = nil
			c.free = append(c.free, uint32(i))
		}
	}
	c.mu.Unlock()
	for _, fn := range fns {
		fn(nil, err)
	}
}

func (c *calls) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.mu.Unlock()
	close(c.stop)
	<-c.done
	_ = c.sub.Unsubscribe()
	c.fail(store.ErrClosed, func(*call) bool { return true })
}

// Error codes of the JetStream API that decide something here.
const (
	codeUnavailable    = 10008 // the cluster has no leader at the moment
	codeConsumerInUse  = 10013 // a consumer's deliver subject has interest
	codeNoConsumer     = 10014 // no consumer found
	codeNoMessage      = 10037 // no message found
	codeWrongLastID    = 10070 // expected last message id does not match
	codeWrongSequence  = 10071 // expected last sequence does not match
	codeNoCluster      = 10074 // replicas > 1 on a server of its own
	codeDuplicateBusy  = 10158 // the same message id is being stored right now
	codeWrongSequence2 = 10164 // as codeWrongSequence, where the last one is not known for certain
)

// apiError is the error part of an answer of JetStream.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("jetstream: %s (%d)", e.Description, e.ErrCode) }

// parsePubAck reads {"stream":...,"seq":N,"duplicate":true} or {"error":{...}}. The common form takes no allocation.
func parsePubAck(data []byte) (seq uint64, duplicate bool, err error) {
	const field = `"seq":`
	for i := 0; i+len(field) < len(data); i++ {
		if data[i] != '"' || string(data[i:i+len(field)]) != field {
			continue
		}
		j := i + len(field)
		for ; j < len(data) && data[j] == ' '; j++ {
		}
		for ; j < len(data) && data[j] >= '0' && data[j] <= '9'; j++ {
			seq = seq*10 + uint64(data[j]-'0')
		}
		if seq > 0 && j < len(data) && data[j] == '}' {
			// The sequence closes the answer unless it has further fields.
			if !hasError(data) {
				return seq, false, nil
			}
		}
		break
	}
	var full struct {
		Error     *apiError `json:"error"`
		Seq       uint64    `json:"seq"`
		Duplicate bool      `json:"duplicate"`
	}
	if err := json.Unmarshal(data, &full); err != nil {
		return 0, false, fmt.Errorf("answer of the store: %w", err)
	}
	if full.Error != nil {
		return 0, false, full.Error
	}
	return full.Seq, full.Duplicate, nil
}

func hasError(data []byte) bool { return len(data) > 9 && string(data[:9]) == `{"error":` }
