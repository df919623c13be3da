package misbehave

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"inflight/broker/packet"
)

// MaxSlow is the largest share that a broker can be slowed by: ten times.
const MaxSlow = 10

const slowPrefix = "slow:"

// slowTopic is where the extra messages go. A client that subscribes to everything sees them.
const slowTopic = "inflight-slow"

// parseSlow reads "slow:10%" as 0.1. ok is false for another kind of fault.
func parseSlow(name string) (share float64, ok bool, err error) {
	text, ok := strings.CutPrefix(name, slowPrefix)
	if !ok {
		return 0, false, nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(percent > 0 && percent <= 100*MaxSlow) {
		return 0, true, fmt.Errorf("%q: want %sN%% with N above 0 and at most %d", name, slowPrefix, 100*MaxSlow)
	}
	return percent / 100, true, nil
}

// slowConn makes the path of acknowledged messages slower by a share, and leaves QoS 0 and everything else alone. A broker
// that answers at once is bound by its latency, a busy one by the work for each message, and most are between. So both
// are stretched, which slows the path by the share wherever it is: an acknowledgement is held back for that share of the
// time that the broker took for it, and the broker gets that share of messages on top, on a topic of their own, whose
// acknowledgements the client does not see. It is deterministic: at 10 % ten messages make one more. A message that is alone
// on its way makes none: there is nothing but latency to it.
//
// The one does not add to the other. What is held back waits in a line of its own (see slowLine), and the broker works on: where
// work bounds the path, there is more queued than the line holds, and where latency does, there is room for more work. A writer
// that slept instead made those wait twice that came while it did, and slowed a pipelined path by twice the share.
type slowConn struct {
	net.Conn
	share float64
	line  *slowLine

	ready   []byte // for the broker; its reader's
	raw     []byte // the start of a packet that is not whole yet, a copy; the reader's
	readErr error  // the reader's

	mu      sync.Mutex
	codec   packet.Codec
	known   bool   // there was a CONNECT
	passed  bool   // what comes is no sequence of packets: it is passed on as it is
	half    []byte // from the broker, not a whole packet yet
	arrived map[slowKey]time.Time
	own     map[uint16]bool // identifiers of the extra messages
	next    uint16
	seen    int64  // messages of the client above QoS 0 that were not alone
	extra   int64  // made of them
	crowded bool   // the client uses our identifiers itself
	owed    []byte // PUBRELs of extra messages; they go to the broker with what the client sends next
}

type slowKey struct {
	t  packet.Type // PUBLISH or PUBREL
	id uint16
}

func newSlowConn(nc net.Conn, share float64) *slowConn {
	return &slowConn{Conn: nc, share: share, line: newSlowLine(nc), arrived: map[slowKey]time.Time{}, own: map[uint16]bool{}, next: firstOwn}
}

// firstOwn is the lowest identifier of an extra message.
const firstOwn = 60_000

// Read gives the broker what the client has sent, and the extra messages. What needs none goes through as it was read.
func (c *slowConn) Read(b []byte) (int, error) {
	if len(c.ready) == 0 {
		if c.readErr != nil {
			return 0, c.readErr
		}
		n, err := c.Conn.Read(b)
		more := c.fromClient(b[:n], time.Now())
		if more == nil {
			return n, err
		}
		c.ready = more
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // after a deadline the broker may set another one
			c.readErr = err
		}
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// Write holds the acknowledgements among b back, and what leaves with them.
func (c *slowConn) Write(b []byte) (int, error) {
	now := time.Now()
	out, hold := c.fromBroker(b, now)
	if len(out) > 0 {
		if err := c.line.write(out, now, hold); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Close ends the connection after what is held back has left.
func (c *slowConn) Close() error {
	c.line.drain()
	return c.Conn.Close()
}

// CloseWrite is what a broker needs that ends a connection in good order.
func (c *slowConn) CloseWrite() error {
	c.line.drain()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// fromClient looks at what was read and returns what the broker gets in its place; nil: just that.
func (c *slowConn) fromClient(read []byte, now time.Time) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passed {
		return nil
	}
	view, before := read, len(c.raw) // the start of a packet that was read, and has gone to the broker, before
	if before > 0 {
		view = append(c.raw, read...)
	}
	var out []byte
	done, at := 0, 0 // of read and of view
	insert := func(b []byte) {
		out = append(append(out, read[done:at-before]...), b...)
		done = at - before
	}
	for {
		if len(c.owed) > 0 && at >= before { // between two packets
			insert(c.owed)
			c.owed = nil
		}
		f, n, _, err := c.codec.Split(view[at:], packet.MaxRemaining)
		if err != nil {
			c.passed = true
		}
		if err != nil || n == 0 {
			break
		}
		at += n
		if extra := c.clientPacket(f, now); len(extra) > 0 {
			insert(extra)
		}
	}
	c.raw = append(c.raw[:0], view[at:]...)
	if out == nil {
		return nil
	}
	return append(out, read[done:]...)
}

// clientPacket returns the extra messages that follow a packet of the client.
func (c *slowConn) clientPacket(f packet.Frame, now time.Time) []byte {
	c.codec.From = packet.FromClient
	switch t := f.Type(); {
	case t == packet.CONNECT && !c.known:
		_, err := c.codec.ParseConnect(f)
		c.known, c.passed = err == nil, err != nil
	case t == packet.PUBLISH && f.Flags()&qosBits != 0:
		if p, err := c.codec.ParsePublish(f); err == nil {
			c.arrived[slowKey{t, p.ID}] = now
			c.crowded = c.crowded || p.ID >= firstOwn
			if len(c.arrived) > 1 { // alone it waits for nothing but the broker's latency
				return c.more(nil, &p)
			}
		}
	case t == packet.PUBREL:
		if a, err := c.codec.ParseAck(f); err == nil {
			c.arrived[slowKey{t, a.ID}] = now
		}
	}
	return nil
}

// qosBits of the flags of a PUBLISH, section 3.3.1.2.
const qosBits = 0b0110

// more appends the extra messages that are due after p.
func (c *slowConn) more(out []byte, p *packet.Publish) []byte {
	const rounding = 1e-9 // a tenth ten times must be one
	for c.seen++; c.extra < int64(float64(c.seen)*c.share+rounding) && len(c.own) < maxOwn && !c.crowded; c.extra++ {
		for c.own[c.next] {
			c.next = max(c.next+1, firstOwn) // after the highest comes the first
		}
		c.own[c.next] = true
		out = c.codec.AppendPublish(out, &packet.Publish{QoS: p.QoS, ID: c.next, Topic: []byte(slowTopic), Payload: p.Payload})
	}
	return out
}

// maxOwn bounds the extra messages that are not acknowledged; a broker that is so far behind gets the others later.
const maxOwn = 4_096

// fromBroker returns what the client gets, and for how long it is held back.
func (c *slowConn) fromBroker(b []byte, now time.Time) (out []byte, hold time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.half = append(c.half, b...)
	for !c.passed {
		f, n, _, err := c.codec.Split(c.half, packet.MaxRemaining)
		if err != nil {
			c.passed = true
			break
		}
		if n == 0 {
			return out, hold
		}
		c.codec.From = packet.FromServer
		held, mine := c.acknowledgement(f, now)
		if !mine {
			out = append(out, c.half[:n]...)
			hold = max(hold, held)
		}
		c.half = c.half[n:]
	}
	out = append(out, c.half...)
	c.half = nil
	return out, hold
}

// acknowledgement returns how long a packet is held back, and whether it answers an extra message.
func (c *slowConn) acknowledgement(f packet.Frame, now time.Time) (hold time.Duration, mine bool) {
	t := f.Type()
	if t != packet.PUBACK && t != packet.PUBREC && t != packet.PUBCOMP {
		return 0, false
	}
	a, err := c.codec.ParseAck(f)
	if err != nil {
		return 0, false
	}
	if c.own[a.ID] {
		if t == packet.PUBREC && !a.Code.Failed() {
			c.owed = c.codec.AppendAck(c.owed, packet.PUBREL, packet.Ack{ID: a.ID})
			return 0, true
		}
		delete(c.own, a.ID)
		return 0, true
	}
	key := slowKey{packet.PUBLISH, a.ID}
	if t == packet.PUBCOMP {
		key.t = packet.PUBREL
	}
	since, ok := c.arrived[key]
	if !ok {
		return 0, false
	}
	delete(c.arrived, key)
	return time.Duration(float64(now.Sub(since)) * c.share), false
}
