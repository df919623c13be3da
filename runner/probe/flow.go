package probe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"inflight/broker/packet"
	"inflight/runner/check"
	"inflight/runner/history"
)

// flow is a publisher with a window, driven by the script's goroutine and fed by the connection's reader. Everything is
// guarded by run.mu.
type flow struct {
	spec  *check.Flow
	next  int             // number of the next message
	done  int             // messages acknowledged
	told  int             // of those, that the run counts
	free  []uint16        // identifiers, in the order of their release
	out   []outstanding   // in order of publication
	where map[uint16]int  // message number by identifier
	rel   []uint16        // PUBRELs to send
	head  int             // of out, what is before is done
	held  map[uint16]bool // released: PUBREL was sent or is due
}

type outstanding struct {
	id  uint16
	k   int
	qos byte
	end bool
}

func newFlow(spec *check.Flow) *flow {
	f := &flow{spec: spec, where: map[uint16]int{}, held: map[uint16]bool{}}
	for i := range spec.IDs {
		f.free = append(f.free, spec.First+uint16(i))
	}
	return f
}

// acknowledged takes a packet that is the flow's.
func (f *flow) acknowledged(p *history.Packet) bool {
	at, ours := f.where[p.ID]
	if !ours {
		return false
	}
	o := &f.out[at]
	switch {
	case p.Type == history.PUBACK && o.qos == 1, p.Type == history.PUBCOMP && o.qos == 2 && f.held[p.ID], p.Type == history.PUBREC && o.qos == 2 && p.Reason >= 0x80:
		o.end = true
		delete(f.where, p.ID)
		delete(f.held, p.ID)
		f.free = append(f.free, p.ID)
		f.done++
		for f.head < len(f.out) && f.out[f.head].end {
			f.head++
		}
	case p.Type == history.PUBREC && o.qos == 2:
		f.held[p.ID] = true
		f.rel = append(f.rel, p.ID)
	default:
		return false
	}
	return true
}

// batch appends what may be sent now. Called with run.mu.
func (f *flow) batch(b []byte, e *check.Encoding) []byte {
	for _, id := range f.rel {
		b = packet.AppendAck(b, packet.PUBREL, id)
	}
	f.rel = f.rel[:0]
	limit := f.spec.Batch
	for n := 0; f.next < f.spec.N && len(f.where) < f.spec.Window && (limit == 0 || n < limit); n++ {
		qos := f.spec.QoSOf(f.next)
		o := outstanding{k: f.next, qos: qos}
		if qos > 0 {
			if len(f.free) == 0 {
				break
			}
			o.id, f.free = f.free[0], f.free[1:]
			f.where[o.id] = len(f.out)
			f.out = append(f.out, o)
		} else {
			f.done++
		}
		b = f.publish(b, e, o, false)
		f.next++
	}
	return b
}

func (f *flow) publish(b []byte, e *check.Encoding, o outstanding, dup bool) []byte {
	m := check.Msg{
		Type: packet.PUBLISH, QoS: o.qos, ID: o.id, Dup: dup, Topic: f.spec.TopicOf(o.k), Body: f.spec.Prefix + strconv.Itoa(o.k), Size: f.spec.Size,
	}
	return m.Encode(b, e)
}

// resend appends what a resumed session owes, in the order of publication [MQTT-4.4.0-1] [MQTT-4.6.0-1].
func (f *flow) resend(b []byte, e *check.Encoding) []byte {
	f.rel = f.rel[:0]
	for _, o := range f.out[f.head:] {
		switch {
		case o.end:
		case f.held[o.id]:
			b = packet.AppendAck(b, packet.PUBREL, o.id)
		default:
			b = f.publish(b, e, o, true)
		}
	}
	return b
}

// flows runs flows side by side, and cuts a subscriber meanwhile. The first that fails is the outcome.
func (r *run) flows(streams []check.Stream, cut *check.Cutter) error {
	var all errgroup.Group
	done := make(chan struct{})
	for i := range streams {
		c := r.conn(streams[i].Conn)
		if c == nil {
			return &stepError{true, fmt.Sprintf("the script has no connection %q", streams[i].Conn)}
		}
		all.Go(func() error {
			if streams[i].Flow.Resume {
				return r.churn(c, &streams[i].Flow)
			}
			return r.flow(c, &streams[i].Flow)
		})
	}
	if cut == nil {
		return all.Wait()
	}
	var cutter errgroup.Group
	cutter.Go(func() error { return r.cutAgain(cut, done) })
	err := all.Wait()
	close(done)
	if cutErr := cutter.Wait(); err == nil {
		err = cutErr
	}
	return err
}

// cutAgain cuts and resumes a subscriber until done is closed; it leaves it connected.
func (r *run) cutAgain(cut *check.Cutter, done <-chan struct{}) error {
	random := rand.New(rand.NewPCG(r.seed, uint64(cut.Times)))
	connect := &check.Connect{Kept: true, Expected: true}
	if cut.Receive > 0 && r.level == history.Level5 {
		connect.Props = &packet.Properties{ReceiveMaximum: packet.Some(cut.Receive)}
	}
	step := &check.Step{Op: check.OpConnect, Conn: cut.Conn, Msgs: []check.Msg{{Type: packet.CONNECT, Connect: connect}}}
	for range cut.Times {
		timer := time.NewTimer(time.Duration(random.Int64N(int64(2*cut.Every) + 1)))
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-r.ctx.Done():
			timer.Stop()
			return &stepError{true, "interrupted"}
		case <-timer.C:
		}
		if c := r.conn(cut.Conn); c != nil {
			c.cut(true)
		}
		if cut.Stay > 0 {
			r.sleep(cut.Stay)
		}
		if err := r.connect(step); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) flow(c *conn, spec *check.Flow) error {
	f := newFlow(spec)
	r.mu.Lock()
	c.flow = f
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		c.flow = nil
		r.mu.Unlock()
	}()
	if spec.Brittle {
		// The end of the connection ends it, and so does a silence; what that means is the judge's.
		var silent *stepError
		if err := r.pump(c, f, func() bool { return false }); !errors.As(err, &silent) || silent.trouble {
			return err
		}
		return nil
	}
	return r.pump(c, f, nil)
}

// pump sends until everything is acknowledged, stopped holds, or nothing moves for the run's timeout.
func (r *run) pump(c *conn, f *flow, stopped func() bool) error {
	e := r.encoding(c.name)
	limit := r.timeout
	if f.spec.Patient || f.spec.Brittle {
		limit = r.long()
	}
	for {
		var b []byte
		done := -1
		moved := r.await(limit, func() bool {
			b = f.batch(b[:0], e)
			done = f.done
			return len(b) > 0 || f.done == f.spec.N || c.closed || stopped != nil && stopped()
		})
		switch {
		case len(b) > 0:
			if err := c.write(b); err != nil && stopped == nil {
				r.await(time.Second, func() bool { return c.closed })
			}
		case done == f.spec.N || stopped != nil && stopped():
			return nil
		case c.closed && stopped != nil:
			return nil
		case c.closed:
			return &stepError{text: fmt.Sprintf("%s: the connection was closed (%s) with %d of %d messages acknowledged", c.name, c.why, done, f.spec.N)}
		case !moved:
			return &stepError{text: fmt.Sprintf("%s: no acknowledgement within %v, with %d of %d messages acknowledged", c.name, limit, done, f.spec.N)}
		}
	}
}

// churn publishes over a connection that is reset again and again.
func (r *run) churn(c *conn, spec *check.Flow) error {
	f := newFlow(spec)
	random := r.random(spec)
	var patient func() bool // the end of the connection ends the pumping and is no error
	if spec.Patient {
		patient = func() bool { return false }
	}
	for cuts := 0; ; cuts++ {
		r.mu.Lock()
		c.flow = f
		r.mu.Unlock()
		if cuts > 0 {
			r.mu.Lock()
			b := f.resend(nil, r.encoding(c.name))
			r.mu.Unlock()
			if len(b) > 0 {
				_ = c.write(b)
			}
		}
		expired := false
		if cuts < spec.Cuts {
			timer := time.AfterFunc(time.Duration(random.Int64N(int64(2*spec.Every)+1)), func() {
				r.mu.Lock()
				expired = true
				r.cond.Broadcast()
				r.mu.Unlock()
			})
			err := r.pump(c, f, func() bool { return expired })
			timer.Stop()
			if err != nil {
				return err
			}
		} else if err := r.pump(c, f, patient); err != nil {
			return err
		}
		r.mu.Lock()
		done := f.done == spec.N
		c.flow = nil
		r.mu.Unlock()
		if done {
			return nil
		}
		if cuts < spec.Cuts {
			c.cut(true)
		}
		if cuts > spec.Cuts+maxReconnects {
			return &stepError{text: fmt.Sprintf("%s: the broker ended %d connections, with %d of %d messages acknowledged", c.name, cuts-spec.Cuts, f.done, spec.N)}
		}
		if err := r.reconnect(c, spec); err != nil {
			return err
		}
		c = r.conn(c.name)
	}
}

// reconnect resumes the session of a churn, with Hop at the next node.
func (r *run) reconnect(c *conn, spec *check.Flow) error {
	node := c.node
	if spec.Hop {
		node++
	}
	if spec.Patient {
		return r.resumePatiently(c.name, node, c.mode, spec.Hop)
	}
	return r.connect(&check.Step{Op: check.OpConnect, Conn: c.name, Msgs: connectMsg(&check.Connect{Kept: true, Expected: true, Node: node})})
}

// connectMsg is a CONNECT as a step has it.
func connectMsg(c *check.Connect) []check.Msg {
	return []check.Msg{{Type: packet.CONNECT, Connect: c}}
}

// random is the source of a churn's times, seeded from the history.
func (r *run) random(spec *check.Flow) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(spec.N)))
}
