package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"inflight/broker/packet"
	"inflight/broker/session"
	"inflight/broker/store"
)

// maxOutput is how many bytes wait for a client that reads slowly before its deliveries wait too.
const maxOutput = 1 << 18

// Why a connection was closed by the broker.
var (
	errTakenOver  = errors.New("another connection uses the same Client Identifier")
	errShutdown   = errors.New("broker is shutting down")
	errDisconnect = errors.New("client disconnected")
)

// conn is one network connection. The fields under client.mu are touched by its reader, its writer, and the feeds of its
// session.
type conn struct {
	srv *Server
	nc  net.Conn
	rd  *packet.Reader

	client   *client // set once, before the writer starts
	pipeline bool
	topic    string      // of the last PUBLISH: the next one's is mostly the same; the reader's
	will     *store.Will // of the CONNECT
	recorded bool        // the end of the connection is in the session's record
	permit               // who the client is and what it may do
	conn5                // what MQTT 5.0 adds

	// Under client.mu.
	pipe     session.Pipeline
	recv     *session.Receiver
	out      []byte // what the writer takes next
	ops      int    // store operations under way
	free     *operation
	spare    int  // how many are free
	timing   bool // one of them is timed
	stopped  bool // no operation is started any more
	settling bool // nothing is read any more; the writer says when everything is answered

	doneMu sync.Mutex
	done   []*operation // finished ones that the writer has not taken

	wakeup   chan struct{} // to the writer; a token means there may be something to do
	finished chan struct{} // closed when nothing of the connection is under way

	closeOnce sync.Once
	closed    chan struct{}
	causeErr  error // why; set before closed is closed

	handing  atomic.Bool   // another connection takes the session over: see handOver
	unread   chan struct{} // closed when the reader has ended
	leaving  atomic.Bool   // the broker drains: read nothing more
	left     chan struct{} // closed when the reader was told
	answered chan struct{} // closed when everything is answered after that
	ended    chan struct{} // closed when serve has returned
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{
		srv: s, nc: nc, rd: packet.NewReader(nc, 32<<10, s.cfg.MaxPacket), pipeline: s.cfg.Pipeline,
		wakeup: make(chan struct{}, 1), finished: make(chan struct{}), closed: make(chan struct{}),
		left: make(chan struct{}), answered: make(chan struct{}), ended: make(chan struct{}), unread: make(chan struct{}),
		conn5: conn5{goodbye: make(chan struct{})},
	}
}

// close ends the connection; the first cause is kept.
func (c *conn) close(why error) {
	c.closeOnce.Do(func() {
		c.causeErr = why
		close(c.closed)
		if c.polite.Load() && c.sayGoodbye(why) {
			return
		}
		_ = c.nc.Close()
	})
}

// handOverTime bounds what a connection that is taken over still reads.
const handOverTime = 20 * time.Millisecond

// handOver lets the reader handle what has arrived, before the connection is closed because another one takes its session
// over: mostly its client has cut it, and what it acknowledged just before would be sent again. It does nothing where a
// time-out of the reader ends the writer as well.
func (c *conn) handOver() {
	if _, halves := c.nc.(interface{ CloseWrite() error }); !halves {
		return
	}
	c.handing.Store(true)
	_ = c.nc.SetReadDeadline(time.Now().Add(handOverTime))
	wait := time.NewTimer(handOverTime)
	defer wait.Stop()
	select {
	case <-c.unread:
	case <-c.closed:
	case <-wait.C:
	}
}

// cause is why the connection was closed; nil while it is open.
func (c *conn) cause() error {
	select {
	case <-c.closed:
		return c.causeErr
	default:
		return nil
	}
}

// serve runs the connection to its end.
func (c *conn) serve() {
	keepAlive, err := c.handshake()
	if err != nil {
		c.srv.log.Debug("connection refused", "remote", c.nc.RemoteAddr(), "error", err)
		c.close(err)
		close(c.finished)
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	why := c.read(keepAlive)
	close(c.unread)
	if c.handing.Load() && errors.Is(why, os.ErrDeadlineExceeded) {
		why = errTakenOver
	}
	if why == errShutdown {
		c.settle()
	}
	c.close(why)
	c.client.mu.Lock()
	c.client.wake.Broadcast()
	c.client.mu.Unlock()
	<-written // the writer ends once every operation has finished
	if why := c.cause(); why != errDisconnect && why != errShutdown {
		c.srv.log.Debug("connection closed", "client", c.client.id, "cause", why)
	}
	c.client.part(c)
	c.endWill(c.cause())
	c.client.leave(c)
	close(c.finished)
	c.srv.detach(c)
}

// handshake reads the CONNECT and attaches the connection to its session [MQTT-3.1.0-1].
func (c *conn) handshake() (keepAlive time.Duration, err error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.cfg.ConnectTimeout))
	if c.leaving.Load() { // see leave
		return 0, errShutdown
	}
	f, err := c.rd.Next()
	if err != nil {
		return 0, fmt.Errorf("read CONNECT: %w", err)
	}
	c.srv.metrics.in.packet(f.Header, wireSize(f))
	if f.Type() != packet.CONNECT {
		return 0, fmt.Errorf("first packet is %v [MQTT-3.1.0-1]", f.Type())
	}
	p, err := c.codec.ParseConnect(f)
	if err != nil {
		if p.Level == packet.Level5 {
			return 0, c.refuse(packet.CodeOf(err), err)
		}
		return 0, err
	}
	c.rd.SetVersion(c.codec.Version)
	if p.Level != packet.Level311 && p.Level != packet.Level5 {
		if p.Level > packet.Level5 {
			c.codec.Version = packet.V5
		}
		return 0, c.refuse(packet.UnsupportedProtocolVersion, fmt.Errorf("protocol level %d [MQTT-3.1.2-2]", p.Level))
	}
	if p.ClientID == "" {
		if !p.CleanSession && p.Level == packet.Level311 {
			return 0, c.refuse(packet.ClientIdentifierNotValid, errors.New("empty Client Identifier for a kept session [MQTT-3.1.3-8]"))
		}
		p.ClientID = "auto-" + nuid.Next() // [MQTT-3.1.3-6]
		c.assigned = true
	}
	c.will = newWill(p.Will)
	if code, err := c.negotiate(&p); err != nil {
		return 0, c.refuse(code, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.srv.cfg.StoreTimeout+takeoverTimeout)
	defer cancel()
	if code, err := c.admit(&p); err != nil {
		return 0, c.refuse(code, err)
	}
	if err := c.srv.connect(ctx, c, &p); err != nil {
		c.srv.log.Warn("connect", "client", p.ClientID, "error", err)
		return 0, c.refuse(packet.ServerUnavailable, err)
	}
	c.readmit()
	return time.Duration(p.KeepAlive) * time.Second * 3 / 2, nil // [MQTT-3.1.2-24]
}

// refuse answers a CONNECT with a Reason Code; the caller closes the connection.
func (c *conn) refuse(code packet.ReasonCode, why error) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	b := c.codec.AppendConnack(nil, &packet.Connack{Code: code})
	if _, err := c.nc.Write(b); err == nil {
		c.srv.metrics.out.packet(b[0], len(b))
	}
	return fmt.Errorf("refused with reason code %#02x: %w", byte(code), why)
}

// attach makes c the connection of its session. The CONNACK is the first thing that leaves [MQTT-3.2.0-1], what a
// resumed session owes follows at once [MQTT-4.4.0-1], and only then do the feeds go on.
func (c *conn) attach(cl *client, present bool, held []store.Held) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c.client = cl
	c.recv = session.NewReceiver(&c.pipe, session.Limits{Copies: c.srv.cfg.Copies, Bytes: c.srv.cfg.CopyBytes}, held)
	c.recv.Unknown = c.unknown()
	c.polite.Store(c.codec.Version == packet.V5)
	c.out = c.codec.AppendConnack(c.out, c.connack(present))
	c.link.Late = cl.out.on
	cl.sender.Connect(c.link)
	cl.conn = c
	cl.resend(c, present)
	c.signal()
	cl.wake.Broadcast()
}

// signal wakes the writer.
func (c *conn) signal() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// read handles packets until the connection ends, and returns why it ended.
func (c *conn) read(keepAlive time.Duration) error {
	var count traffic
	total := &c.srv.metrics.in
	defer func() { total.fold(&count) }()
	_ = c.nc.SetReadDeadline(time.Time{}) // that of the CONNECT
	fresh := true                         // a packet was handled since the Keep Alive began to run
	for {
		if c.leaving.Load() {
			return errShutdown
		}
		f, ok, err := c.rd.Buffered()
		if err != nil {
			return err
		}
		if !ok {
			if fresh && keepAlive > 0 {
				_ = c.nc.SetReadDeadline(time.Now().Add(keepAlive)) // [MQTT-3.1.2-24]; a part of a packet does not extend it
			}
			if c.handing.Load() {
				_ = c.nc.SetReadDeadline(time.Now().Add(handOverTime))
			}
			fresh = false
			total.fold(&count)
			if c.leaving.Load() { // see leave
				return errShutdown
			}
			if err := c.rd.Fill(); err != nil {
				if c.leaving.Load() {
					return errShutdown
				}
				return err
			}
			continue
		}
		if c.parting.Load() {
			return c.cause()
		}
		fresh = true
		count.add(f.Header, wireSize(f))
		if err := c.handle(f); err != nil {
			return err
		}
	}
}

// awaitRoom waits while the window of the pipeline is full: not reading is what pushes back. client.mu is held.
func (c *conn) awaitRoom() {
	for c.pipe.Pending() >= c.srv.cfg.Window && c.cause() == nil {
		c.client.wake.Wait()
	}
}

// settleRead ends the handling of a packet that may have started an operation. Without pipelining it waits until nothing
// is under way. client.mu is held.
func (c *conn) settleRead() error {
	if !c.pipeline {
		for c.ops > 0 && c.cause() == nil {
			c.client.wake.Wait()
		}
	}
	if c.ops == 0 {
		c.signal() // an answer that needed no operation; otherwise the operation's end wakes the writer
	}
	return nil
}

// write takes finished operations and writes what may leave. It returns when the connection is closed and no operation
// is under way.
func (c *conn) write() {
	cl := c.client
	var batch []*operation
	var next []session.Op
	var buf []byte
	var count traffic
	answered := false // the broker drains, and nothing is written any more
	closed := c.closed
	for {
		select {
		case <-c.wakeup:
		case <-closed:
			closed = nil // from now on only the outcomes are waited for
		}
		c.doneMu.Lock()
		batch, c.done = c.done, batch[:0]
		c.doneMu.Unlock()

		cl.mu.Lock()
		var failed error
		c.timing = c.timing && len(batch) == 0
		c.srv.metrics.count(batch)
		for i, o := range batch {
			c.ops--
			if failed == nil && !c.stopped {
				next, failed = c.take(o, next[:0])
				for _, op := range next {
					c.start(op)
				}
			}
			c.put(o)
			batch[i] = nil
		}
		if failed != nil || c.cause() != nil {
			c.stopped = true
		}
		ops := c.ops
		if !c.stopped {
			c.out = c.pipe.Append(c.out)
		}
		settled := c.settled()
		c.settling = c.settling && !settled // answered is closed once
		buf, c.out = c.out, buf[:0]
		cl.wake.Broadcast()
		cl.mu.Unlock()

		if failed != nil {
			c.close(fmt.Errorf("store: %w", failed))
		}
		if c.cause() != nil {
			if ops == 0 {
				return
			}
			closed = nil
			continue
		}
		if len(buf) > 0 && !answered {
			_ = c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.WriteTimeout))
			if err := c.send(buf); err != nil {
				c.close(fmt.Errorf("write: %w", err))
				c.signal()
			}
			count.addAll(buf)
			c.srv.metrics.out.fold(&count)
		}
		if settled {
			answered = true
			close(c.answered)
		}
		if cap(buf) > 4*maxOutput {
			buf = nil
		}
	}
}
