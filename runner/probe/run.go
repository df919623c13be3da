package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"inflight/broker/packet"
	"inflight/runner/check"
	"inflight/runner/history"
)

// Environment is what a script runs in.
type Environment struct {
	Endpoint Endpoint
	Timeout  time.Duration // of every expectation
	Long     time.Duration // of one that may take long; 0: check.LongFactor times as long
	Tag      string        // unique to this run of a script: letters and digits, at most 12
	Nodes    []Endpoint    // of a cluster, the first is Endpoint; nil: no more than that one is known
	Hook     func(ctx context.Context, name string, node int) error
	Hints    bool // nobody was let in yet: it is said what an ended connection may be about
	Undo     bool // what a hook began is undone, whatever becomes of the script
	Memory   func() (int64, error)
}

// run interprets one script.
type run struct {
	ctx     context.Context
	env     Environment
	timeout time.Duration
	rec     *history.Recorder
	level   byte
	seed    uint64
	readers sync.WaitGroup

	mu    sync.Mutex
	cond  *sync.Cond
	over  bool
	conns map[string]*conn // the present one of each client
	all   []*conn
	last  time.Time // when something was received
	acked int       // messages of flows that were acknowledged
	undo  []undo    // hooks that are still due
	kept  map[string]bool
	seen  map[string]map[string]bool // bodies that a client has got, for those that a script gathers
}

// errTrouble marks what says nothing about the broker's conformance.
var errTrouble = errors.New("the check could not be made")

type stepError struct {
	trouble bool
	text    string
}

func (e *stepError) Error() string { return e.text }

func (e *stepError) Is(target error) bool { return e.trouble && target == errTrouble }

// Play runs a script and returns its history, whatever happened.
func Play(ctx context.Context, env Environment, rule string, s *check.Script, round int, seed uint64) *history.History {
	h := &history.History{Check: rule, Version: s.V, Round: round, Seed: seed, Facts: map[string]string{}}
	s.Caps.KeepIn(h.Facts)
	for k, v := range s.Facts {
		h.Facts[k] = v
	}
	prefix := "inflight/" + env.Tag + "/"
	h.Facts[check.FactPrefix] = prefix
	r := &run{
		ctx: ctx, env: env, timeout: env.Timeout, rec: history.NewRecorder(h, time.Now), level: s.V, seed: seed + uint64(round),
		conns: map[string]*conn{}, kept: map[string]bool{}, last: time.Now(),
		seen: map[string]map[string]bool{},
	}
	for _, step := range s.Steps {
		if step.Op == check.OpGather {
			r.seen[step.Conn] = map[string]bool{}
		}
	}
	r.cond = sync.NewCond(&r.mu)
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		r.over = true
		r.cond.Broadcast()
		r.mu.Unlock()
	})
	defer stop()
	for _, step := range s.Steps {
		if err := r.step(&step); err != nil {
			if ctx.Err() != nil {
				err = &stepError{true, "interrupted"}
			}
			r.rec.Note(errors.Is(err, errTrouble), err.Error())
			break
		}
	}
	if env.Undo {
		if err := r.undoAll(); err != nil {
			r.rec.Note(true, err.Error())
		}
	}
	h = r.rec.Finish()
	r.finish()
	r.clean(s.Retained)
	return h
}

// finish says goodbye on what is open and waits for the readers.
func (r *run) finish() {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	for _, c := range all {
		r.mu.Lock()
		open := !c.closed
		r.mu.Unlock()
		if open {
			_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = c.nc.Write(packet.AppendEmpty(nil, packet.DISCONNECT))
		}
		c.cut(false)
	}
	r.mu.Lock()
	r.over = true
	r.cond.Broadcast()
	r.mu.Unlock()
	r.readers.Wait()
}

// encoding is how the run's packets become bytes.
func (r *run) encoding(conn string) *check.Encoding {
	e := r.env.Endpoint
	return &check.Encoding{
		V: packet.Version(r.level), Topic: r.topic, Client: r.client, Conn: conn, Username: e.Username, Password: e.Password,
	}
}

// topic puts the run's prefix before a topic or filter, behind the share name of a shared one.
func (r *run) topic(t string) string {
	prefix := "inflight/" + r.env.Tag + "/"
	if rest, ok := strings.CutPrefix(t, "$share/"); ok {
		group, filter, _ := strings.Cut(rest, "/")
		return "$share/" + r.env.Tag + group + "/" + prefix + filter
	}
	return prefix + t
}

// client is a Client Identifier of letters and digits; every broker takes up to 23 of them [MQTT-3.1.3-5].
func (r *run) client(name string) string { return r.env.Tag + name }

func (r *run) bytes(conn string, msgs []check.Msg) []byte {
	var b []byte
	e := r.encoding(conn)
	c := r.conn(conn)
	e.Echo = func(k int) uint16 { return r.echo(c, k) }
	for i := range msgs {
		b = msgs[i].Encode(b, e)
	}
	return b
}

// conn is the present connection of a client, nil if it has none.
func (r *run) conn(name string) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[name]
}

// echo is the identifier of the kth delivery above QoS 0 of a connection, 0 if it has not come.
func (r *run) echo(c *conn, k int) uint16 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == nil || k < 1 || k > len(c.pubs) {
		return 0
	}
	return c.pubs[k-1]
}

// release answers every PUBREC that has no PUBREL yet.
func (r *run) release(c *conn) {
	r.mu.Lock()
	ids := c.recs
	c.recs = nil
	r.mu.Unlock()
	var b []byte
	for _, id := range ids {
		b = packet.AppendAck(b, packet.PUBREL, id)
	}
	if len(b) > 0 {
		_ = c.write(b)
	}
}

func (r *run) step(s *check.Step) error {
	if r.ctx.Err() != nil {
		return &stepError{true, "interrupted"}
	}
	switch s.Op {
	case check.OpDial:
		_, err := r.dial(s.Conn, 0)
		return err
	case check.OpConnect:
		return r.connect(s)
	case check.OpWait:
		r.sleep(s.For)
		return nil
	case check.OpQuiet:
		r.quiet(s.For)
		return nil
	case check.OpHook:
		return r.hook(s.Name, s.N)
	case check.OpMemory:
		return r.memory(s.Name)
	}
	c := r.conn(s.Conn)
	if c == nil {
		return &stepError{true, fmt.Sprintf("the script has no connection %q", s.Conn)}
	}
	switch s.Op {
	case check.OpSend:
		_ = c.write(r.bytes(s.Conn, s.Msgs)) // a broken connection shows at the next expectation
	case check.OpTrickle:
		_ = c.trickle(r.bytes(s.Conn, s.Msgs), max(s.N, 1), s.For)
	case check.OpRelease:
		r.release(c)
	case check.OpExpect:
		return r.expect(c, s)
	case check.OpGather:
		r.gather(s)
	case check.OpExpectClose:
		return r.expectClose(c, s)
	case check.OpMode:
		r.mu.Lock()
		c.mode = s.Mode
		r.cond.Broadcast()
		r.mu.Unlock()
	case check.OpCut, check.OpReset:
		c.cut(s.Op == check.OpReset)
	case check.OpFlow:
		return r.storm(s)
	case check.OpChurn:
		return r.churn(c, s.Flow)
	}
	return nil
}

// sleep waits; false when the run is over before.
func (r *run) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// received takes a packet into the run and appends the answers to it. What is read from a connection that was cut already
// is what a client that has died would not have seen: it is no part of the history.
func (r *run) received(c *conn, raw []byte, p history.Packet, err error, answers []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return answers
	}
	r.rec.Add(c.index, history.Received, raw, "")
	r.last = time.Now()
	c.heard = r.last
	if err == nil {
		if seen := r.seen[c.name]; seen != nil && p.Type == history.PUBLISH {
			seen[check.BodyOf(&p)] = true
		}
		switch {
		case p.Type == history.PUBLISH && p.QoS > 0:
			c.pubs = append(c.pubs, p.ID)
		case p.Type == history.PUBREC && p.Reason < 0x80 && c.flow == nil && !c.mode.Release:
			c.recs = append(c.recs, p.ID)
		}
		if c.flow == nil || !c.flow.acknowledged(&p) {
			answers = c.answer(&p, answers)
			c.got = append(c.got, p)
		} else {
			r.acked += c.flow.done - c.flow.told
			c.flow.told = c.flow.done
		}
	}
	r.cond.Broadcast()
	return answers
}

// await waits until done holds, which is called with the lock; false after d, or when the run is over.
func (r *run) await(d time.Duration, done func() bool) bool {
	deadline := time.Now().Add(d)
	wake := time.AfterFunc(d, func() {
		r.mu.Lock()
		r.cond.Broadcast()
		r.mu.Unlock()
	})
	defer wake.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !done() {
		if r.over || !time.Now().Before(deadline) {
			return false
		}
		r.cond.Wait()
	}
	return true
}

func (r *run) expect(c *conn, s *check.Step) error {
	left := append([]check.Want(nil), s.Wants...)
	for i := range left {
		if left[i].Echo != 0 {
			left[i].ID = r.echo(c, left[i].Echo)
		}
	}
	limit := r.timeout
	switch {
	case s.For > 0:
		limit = s.For
	case s.Long:
		limit = r.long()
	}
	end := time.Now().Add(quietTimes * limit)
	seen, gone := 0, false
	progress := func() bool {
		for ; seen < len(c.got) && len(left) > 0; seen++ {
			if i := matching(left, &c.got[seen]); i >= 0 {
				left = append(left[:i], left[i+1:]...)
				c.got = append(c.got[:seen], c.got[seen+1:]...)
				seen--
			}
		}
		gone = c.closed
		return len(left) == 0 || gone
	}
	// A connection that still gets something is late, not silent: what is due may stand behind it.
	for wait := limit; wait > 0 && !r.await(wait, progress); {
		wait = limit - r.silence(c)
		if s.Long || r.ctx.Err() != nil || time.Now().After(end) {
			break
		}
	}
	if len(left) == 0 || s.Soft {
		return nil
	}
	text := fmt.Sprintf("%s: no %v within %v", c.name, left[0], limit)
	if gone {
		text = fmt.Sprintf("%s: the connection was closed (%s) while %v was awaited", c.name, c.why, left[0])
	}
	if n := len(left) - 1; n > 0 {
		text += fmt.Sprintf(", nor %d other packets", n)
	}
	return &stepError{s.Setup, text}
}

// long is how long is waited for what may take long.
func (r *run) long() time.Duration {
	if r.env.Long > 0 {
		return r.env.Long
	}
	return check.LongFactor * r.timeout
}

// gather waits until a client has got everything, on whichever of its connections, or nothing more of it comes.
func (r *run) gather(s *check.Step) {
	c := r.conn(s.Conn)
	left := s.Wants
	over := func() bool { // they mostly come in this order
		for len(left) > 0 && r.seen[s.Conn][left[0].Body] {
			left = left[1:]
		}
		return len(left) == 0 || c.closed // nobody resumes it now
	}
	// What still comes is late, not lost.
	for wait := r.long(); wait > 0 && !r.await(wait, over) && r.ctx.Err() == nil; {
		wait = r.long() - r.silence(c)
	}
}

// silence is how long nothing has come on a connection.
func (r *run) silence(c *conn) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(c.heard)
}

// matching is the first want that the packet fulfils, -1 if none.
func matching(wants []check.Want, p *history.Packet) int {
	for i, w := range wants {
		if w.Type == p.Type && (w.ID == 0 || w.ID == p.ID) && (w.Body == "" || w.Body == check.BodyOf(p)) {
			return i
		}
	}
	return -1
}

func (r *run) expectClose(c *conn, s *check.Step) error {
	limit := r.timeout
	if s.For > 0 {
		limit = s.For
	}
	if r.await(limit, func() bool { return c.closed }) || s.Soft {
		return nil
	}
	return &stepError{s.Setup, fmt.Sprintf("%s: the broker did not close the connection within %v", c.name, limit)}
}

// quietTimes bounds the waiting for a silence of d: a broker that never stops sending is not waited for.
const quietTimes = 20

func (r *run) quiet(d time.Duration) {
	end := time.Now().Add(quietTimes * d)
	for {
		r.mu.Lock()
		left := d - time.Since(r.last)
		r.mu.Unlock()
		if left <= 0 || time.Now().After(end) || !r.sleep(max(left, time.Millisecond)) {
			return
		}
	}
}

func (r *run) memory(name string) error {
	if r.env.Memory == nil {
		return &stepError{true, "the broker's memory cannot be read"}
	}
	n, err := r.env.Memory()
	if err != nil {
		return &stepError{true, fmt.Sprintf("read the broker's memory: %v", err)}
	}
	r.rec.Fact(name, fmt.Sprint(n))
	return nil
}

// clean removes the kept sessions and retained messages of the script, as far as the broker is still there for it.
func (r *run) clean(retained []string) {
	if len(r.kept) == 0 && len(retained) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanTime)
	defer cancel()
	for name := range r.kept {
		r.once(ctx, name, nil)
	}
	if len(retained) > 0 {
		var b []byte
		for _, t := range retained {
			b = packet.Version(r.level).AppendPublish(b, &packet.Publish{Topic: []byte(r.topic(t)), Retain: true})
		}
		r.once(ctx, "clean", b)
	}
}

// cleanTime bounds the cleaning up after one script.
const cleanTime = 3 * time.Second

// once connects a client with a clean session, sends b, and disconnects.
func (r *run) once(ctx context.Context, name string, b []byte) {
	nc, err := r.env.Endpoint.Dial(ctx, cleanTime)
	if err != nil {
		return
	}
	defer nc.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
	}
	m := check.Msg{Type: packet.CONNECT, Connect: &check.Connect{}}
	if _, err := nc.Write(m.Encode(nil, r.encoding(name))); err != nil {
		return
	}
	head := make([]byte, 2)
	if _, err := nc.Read(head); err != nil {
		return
	}
	_, _ = nc.Write(append(b, packet.AppendEmpty(nil, packet.DISCONNECT)...))
	_, _ = nc.Read(make([]byte, 1<<10)) // until the broker has taken it
}
