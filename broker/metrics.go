package broker

import (
	"sync/atomic"
	"time"

	"inflight/broker/node"
	"inflight/broker/ops"
	"inflight/broker/packet"
	"inflight/broker/session"
)

// dropReason is why a message was dropped for a subscription.
type dropReason byte

const (
	dropSlow  dropReason = iota // QoS 0: the connection's output is full, the subscriber reads too slowly
	dropAway                    // QoS 0: nobody is connected
	dropQueue                   // above QoS 0: the session's queue is at its limit
	dropReasons
)

var dropNames = [dropReasons]string{"slow_subscriber", "not_connected", "queue_full"}

// endReason is why a connection ended.
type endReason byte

const (
	endDisconnect endReason = iota // DISCONNECT
	endTakenOver
	endShutdown
	endRefused // no session: bad CONNECT, refused, timed out
	endOther   // closed by the client, protocol error, keep-alive, failed store operation
	endReasons
)

var endNames = [endReasons]string{"disconnect", "taken_over", "shutdown", "refused", "other"}

// opKinds are the store operations of connections, by [session.OpKind].
const opKinds = int(session.OpFetch) + 1

var opNames = [opKinds]string{session.OpPublish: "publish", session.OpHold: "hold", session.OpRelease: "release", session.OpFetch: "fetch"}

// traffic counts packets of one direction.
type traffic struct {
	packets  [16]int64
	messages [4]int64 // by the QoS bits; 3 is malformed
	bytes    int64
}

// add counts one packet: its first byte and its size on the wire.
func (t *traffic) add(header byte, size int) {
	t.packets[header>>4]++
	t.bytes += int64(size)
	if packet.Type(header>>4) == packet.PUBLISH {
		t.messages[header>>1&3]++
	}
}

// addAll counts whole packets in a row, as the writer has them. It reads fixed headers only.
func (t *traffic) addAll(b []byte) {
	for len(b) >= 2 {
		length, n := int(b[1]&0x7F), 2
		for shift := 7; b[n-1]&0x80 != 0 && n < len(b) && shift <= 21; shift += 7 {
			length |= int(b[n]&0x7F) << shift
			n++
		}
		size := min(n+length, len(b))
		t.add(b[0], size)
		b = b[size:]
	}
}

// wireSize is what a packet takes on the wire, its Remaining Length in the shortest form.
func wireSize(f packet.Frame) int {
	n := len(f.Body)
	switch {
	case n < 1<<7:
		return 2 + n
	case n < 1<<14:
		return 3 + n
	case n < 1<<21:
		return 4 + n
	}
	return 5 + n
}

// trafficTotal is the sum of the traffic of all connections.
type trafficTotal struct {
	packets  [16]atomic.Int64
	messages [4]atomic.Int64
	bytes    atomic.Int64
}

// fold moves what a connection counted into the total.
func (t *trafficTotal) fold(from *traffic) {
	if from.bytes == 0 {
		return
	}
	for i, n := range from.packets {
		if n != 0 {
			t.packets[i].Add(n)
		}
	}
	for i, n := range from.messages {
		if n != 0 {
			t.messages[i].Add(n)
		}
	}
	t.bytes.Add(from.bytes)
	*from = traffic{}
}

// packet counts a single packet.
func (t *trafficTotal) packet(header byte, size int) {
	var one traffic
	one.add(header, size)
	t.fold(&one)
}

// metrics is what a broker counts. The reader and the writer of a connection count packets in plain fields of their own
// and fold them into the totals once for each batch: a counter that every packet of every connection touches would move
// between the cores for each of them. Gauges are not kept at all; a scrape reads them from the sessions.
type metrics struct {
	epoch    time.Time
	clocked  bool // take the time of store operations; only when somebody may look
	in, out  trafficTotal
	accepted atomic.Int64
	dropped  [dropReasons]atomic.Int64
	ended    [endReasons]atomic.Int64
	ops      [opKinds]opTotal
}

// opTotal counts one kind of store operation.
type opTotal struct {
	ok, failed atomic.Int64
	buckets    [len(ops.Latency{}.Buckets)]atomic.Int64
	sum        atomic.Int64 // ns
}

// clock is the time since the broker started, or 0 while nobody wants to know.
func (m *metrics) clock() time.Duration {
	if !m.clocked {
		return 0
	}
	return time.Since(m.epoch)
}

// count counts finished operations by outcome.
func (m *metrics) count(batch []*operation) {
	if len(batch) == 0 {
		return
	}
	var ok, failed [opKinds]int64
	for i := range batch {
		if batch[i].err != nil {
			failed[batch[i].op.Kind]++
		} else {
			ok[batch[i].op.Kind]++
		}
	}
	for kind := range opKinds {
		if ok[kind] > 0 {
			m.ops[kind].ok.Add(ok[kind])
		}
		if failed[kind] > 0 {
			m.ops[kind].failed.Add(failed[kind])
		}
	}
}

// startTiming returns the start of an operation that is to be timed, or 0. Of each batch that the writer takes one
// operation is timed: all of a connection that waits for each, and a sample of one that is pipelined, where reading the
// clock twice for each operation would show. client.mu is held.
func (c *conn) startTiming() time.Duration {
	if c.timing {
		return 0
	}
	c.timing = true
	return c.srv.metrics.clock()
}

// timed takes the time of an operation that has ended. It is called by the store, from any goroutine.
func (m *metrics) timed(kind session.OpKind, started time.Duration) {
	if started == 0 {
		return
	}
	took := m.clock() - started
	m.ops[kind].buckets[ops.Bucket(took)].Add(1)
	m.ops[kind].sum.Add(int64(took))
}

func (m *metrics) drop(why dropReason) { m.dropped[why].Add(1) }

// dropQueued counts what the memory store dropped: QoS 0 because the subscriber is slow, else at the queue's limit.
func (m *metrics) dropQueued(qos byte) {
	if qos == 0 {
		m.drop(dropSlow)
	} else {
		m.drop(dropQueue)
	}
}

func (m *metrics) end(cause error, attached bool) {
	why := endOther
	switch {
	case cause == errShutdown:
		why = endShutdown
	case !attached:
		why = endRefused
	case cause == errDisconnect, cause == errWithWill:
		why = endDisconnect
	case cause == errTakenOver:
		why = endTakenOver
	}
	m.ended[why].Add(1)
}

// snapshot reads everything that the broker has counted and looks at each session once.
func (s *Server) snapshot() ops.Snapshot {
	m := &s.metrics
	snap := ops.Snapshot{
		Version: s.cfg.Version, Store: s.cfg.Store, Durability: s.cfg.durability(), Ready: s.serving() == nil,
		Uptime: time.Since(m.epoch), Accepted: m.accepted.Load(), BytesIn: m.in.bytes.Load(), BytesOut: m.out.bytes.Load(),
	}
	for t := packet.CONNECT; t <= packet.DISCONNECT; t++ {
		snap.PacketsIn = append(snap.PacketsIn, ops.Labelled{Label: t.String(), Value: m.in.packets[t].Load()})
		snap.PacketsOut = append(snap.PacketsOut, ops.Labelled{Label: t.String(), Value: m.out.packets[t].Load()})
	}
	for qos := range 3 {
		snap.MessagesIn[qos], snap.MessagesOut[qos] = m.in.messages[qos].Load(), m.out.messages[qos].Load()
	}
	for i := range m.dropped {
		n := m.dropped[i].Load()
		if dropReason(i) == dropSlow {
			n += s.storeDropped()
		}
		snap.Dropped = append(snap.Dropped, ops.Labelled{Label: dropNames[i], Value: n})
	}
	for i := range m.ended {
		snap.Closed = append(snap.Closed, ops.Labelled{Label: endNames[i], Value: m.ended[i].Load()})
	}
	for kind := range m.ops {
		if opNames[kind] == "" {
			continue
		}
		op := &m.ops[kind]
		o := ops.StoreOp{Kind: opNames[kind], OK: op.ok.Load(), Failed: op.failed.Load()}
		for i := range op.buckets {
			o.Seconds.Buckets[i] = op.buckets[i].Load()
		}
		o.Seconds.Sum = time.Duration(op.sum.Load())
		snap.StoreOps = append(snap.StoreOps, o)
	}
	if snap.Ready {
		snap.Leaders = s.leaders()
	}
	s.mu.Lock()
	snap.Connections, snap.Sessions = len(s.conns), len(s.clients)
	s.mu.Unlock()
	s.eachClient(func(cl *client) {
		snap.Subscriptions += len(cl.subs)
		snap.InFlightOut += cl.sender.InFlight()
		if c := cl.conn; c != nil {
			snap.InFlightIn += c.recv.Open()
			snap.Pending += c.pipe.Pending()
			snap.StorePending += c.ops
		}
	})
	return snap
}

// leaders is which node leads each stream of the cluster that this one is a member of.
func (s *Server) leaders() map[string]string {
	if n, ok := s.node.(*node.Node); ok && n.Clustered() {
		if leaders, err := n.Leaders(); err == nil { // with an error the broker is not ready either, which /readyz explains
			return leaders
		}
	}
	return nil
}

// storeDropped is what a store dropped before a slow session could take it. Only some stores have such a queue.
func (s *Server) storeDropped() int64 {
	s.mu.Lock()
	opened := s.opened
	s.mu.Unlock()
	if opened {
		if st, ok := s.store.(interface{ Dropped() int64 }); ok {
			return st.Dropped()
		}
	}
	return 0
}

// eachClient visits the sessions of this node, each under its own lock.
func (s *Server) eachClient(visit func(cl *client)) {
	s.mu.Lock()
	all := make([]*client, 0, len(s.clients))
	for _, cl := range s.clients {
		all = append(all, cl)
	}
	s.mu.Unlock()
	for _, cl := range all {
		cl.mu.Lock()
		visit(cl)
		cl.mu.Unlock()
	}
}
