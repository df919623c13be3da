package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"inflight/broker/packet"
	"inflight/runner/check"
	"inflight/runner/history"
)

// Limits of one connection.
const (
	readSize   = 64 << 10
	maxPacket  = 32 << 20 // a longer one is not waited for
	writeLimit = 10 * time.Second
	firstBytes = 12 // are kept, to say what is spoken there if it is not MQTT
)

// conn is one transport connection of a run. Fields below mu of the run are its.
type conn struct {
	run   *run
	name  string
	index int // in the history
	level byte
	nc    net.Conn
	node  int // of a cluster, from 0

	wmu sync.Mutex // held over recording and writing, so that both have one order

	// guarded by run.mu
	mode   check.Mode
	got    []history.Packet // received and not used up by an expectation
	flow   *flow            // takes acknowledgements first
	pubs   []uint16         // identifiers of the PUBLISH packets above QoS 0 that came
	recs   []uint16         // of the PUBRECs that have no PUBREL yet
	heard  time.Time        // when the last packet came
	first  []byte           // what came first, at most firstBytes of it
	closed bool             // nothing more will come
	why    string           // it is closed
	ours   bool             // we closed it
}

// start begins reading.
func (c *conn) start() { c.run.readers.Go(c.read) }

func (c *conn) read() {
	buf := make([]byte, 0, readSize)
	begun := false
	for {
		if !c.hearing() {
			return
		}
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, len(buf))...)[:len(buf)]
		}
		n, err := c.nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 && !begun {
			begun = true
			c.begin(buf)
		}
		rest, bad := c.take(buf)
		buf = append(buf[:0], rest...)
		if bad != "" {
			c.run.rec.Add(c.index, history.Garbage, buf[:min(len(buf), readSize)], "")
			c.end(history.Closed, bad)
			_ = c.nc.Close()
			return
		}
		if err != nil {
			if len(buf) > 0 {
				c.run.rec.Add(c.index, history.Garbage, buf, "")
			}
			c.end(history.Closed, closeText(err))
			return
		}
	}
}

// tlsAlert is how a TLS listener's answer to a CONNECT begins, if it has one: an alert of some version.
var tlsAlert = []byte{0x15, 0x03}

// begin keeps what came first.
func (c *conn) begin(buf []byte) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.first = bytes.Clone(buf[:min(len(buf), firstBytes)])
}

// stranger says what came in place of a CONNACK, "" if nothing did.
func (c *conn) stranger() string {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	if len(c.first) == 0 || history.Type(c.first[0]>>4) == history.CONNACK || bytes.HasPrefix(c.first, tlsAlert) {
		return ""
	}
	return fmt.Sprintf("; what came, %q, is none: does MQTT listen there?", c.first)
}

// hearing waits while the connection is deaf; false when it is over.
func (c *conn) hearing() bool {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	for c.mode.Deaf && !c.closed && !c.run.over {
		c.run.cond.Wait()
	}
	return !c.closed && !c.run.over
}

// take handles the whole packets of buf and returns the rest; bad says why what follows cannot be a packet.
func (c *conn) take(buf []byte) (rest []byte, bad string) {
	var answers []byte
	defer func() {
		if len(answers) > 0 {
			_ = c.write(answers) // the reader sees a broken connection
		}
	}()
	for {
		n, err := history.FrameLength(buf)
		switch {
		case err != nil:
			return buf, "the bytes that came cannot begin a control packet"
		case n > maxPacket:
			return buf, fmt.Sprintf("a packet of %d bytes was announced", n)
		case n == 0 || n > len(buf):
			return buf, ""
		}
		p, err := history.Decode(c.level, true, buf[:n])
		raw := buf[:n]
		buf = buf[n:]
		answers = c.run.received(c, raw, p, err, answers)
	}
}

// closeText says how a connection ended.
func closeText(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "FIN"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return innermost(err).Error()
}

// end marks the connection as over, once.
func (c *conn) end(kind history.Kind, why string) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	if c.closed {
		return
	}
	c.closed, c.why = true, why
	if !c.ours {
		c.run.rec.Add(c.index, kind, nil, why)
	}
	c.run.cond.Broadcast()
}

// write records and writes.
func (c *conn) write(b []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.run.rec.Add(c.index, history.Sent, b, "")
	return c.put(b)
}

func (c *conn) put(b []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(min(writeLimit, c.run.timeout))); err != nil {
		return err
	}
	piece := len(b)
	c.run.mu.Lock()
	if c.mode.PerByte {
		piece = 1
	}
	c.run.mu.Unlock()
	for len(b) > 0 {
		n := min(piece, len(b))
		if _, err := c.nc.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// trickle records once and writes in pieces.
func (c *conn) trickle(b []byte, piece int, gap time.Duration) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.run.rec.Add(c.index, history.Sent, b, fmt.Sprintf("in pieces of %d bytes, %v apart", piece, gap))
	for len(b) > 0 {
		n := min(piece, len(b))
		if err := c.put(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 && gap > 0 && !c.run.sleep(gap) {
			return c.run.ctx.Err()
		}
	}
	return nil
}

// cut ends the connection from our side. What has arrived and was not read is lost, as it is when a client dies.
func (c *conn) cut(reset bool) {
	c.run.mu.Lock()
	if c.closed {
		c.run.mu.Unlock()
		_ = c.nc.Close()
		return
	}
	how := "FIN"
	if reset {
		how = "RST"
	}
	c.ours, c.closed, c.why = true, true, "we ended it"
	c.run.rec.Add(c.index, history.Cut, nil, how)
	c.run.cond.Broadcast()
	c.run.mu.Unlock()
	if tcp, ok := c.nc.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = c.nc.Close()
}

// answer appends what the connection's mode answers by itself. Called with run.mu.
func (c *conn) answer(p *history.Packet, b []byte) []byte {
	m := c.mode
	switch {
	case p.Type == history.PUBLISH && p.QoS == 1 && !m.HoldAck:
		return packet.AppendAck(b, packet.PUBACK, p.ID)
	case p.Type == history.PUBLISH && p.QoS == 2 && !m.HoldRec:
		return packet.AppendAck(b, packet.PUBREC, p.ID)
	case p.Type == history.PUBREL && !m.HoldComp:
		return packet.AppendAck(b, packet.PUBCOMP, p.ID)
	case p.Type == history.PUBREC && m.Release && p.Reason < 0x80:
		return packet.AppendAck(b, packet.PUBREL, p.ID)
	}
	return b
}
