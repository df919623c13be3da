package staged

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pull is one request for messages. A message does not tell which request it answers; as every open one gets its turn, what
// is said here of how much is left is right but for what is on its way.
type pull struct {
	token  uint64
	m      *groupMember
	left   int
	issued time.Time
}

// ask requests as many messages as a connected member has room for. The lock is held.
func (g *group) ask(m *groupMember) {
	if g.missing || !m.connected {
		return
	}
	for m.pulls < memberPulls && len(m.out)+m.asked+pullBatch <= memberCredit {
		g.token++
		g.pulls = append(g.pulls, &pull{token: g.token, m: m, left: pullBatch, issued: time.Now()})
		m.pulls++
		m.asked += pullBatch
		_ = g.s.nc.PublishMsg(&nats.Msg{
			Subject: "$JS.API.CONSUMER.MSG.NEXT." + msgsStream + "." + g.name, Reply: g.inbox + strconv.FormatUint(g.token, 36),
			Data: []byte(`{"batch":` + strconv.Itoa(pullBatch) + `,"expires":` + strconv.FormatInt(int64(pullExpires), 10) + `}`),
		})
	}
}

// done ends request i. The lock is held.
func (g *group) done(i int) {
	p := g.pulls[i]
	g.pulls = slices.Delete(g.pulls, i, i+1)
	p.m.pulls--
	p.m.asked -= p.left
}

// served counts a message for the request whose turn it is. The lock is held.
func (g *group) served() {
	if len(g.pulls) == 0 {
		return
	}
	p := g.pulls[0]
	p.left--
	p.m.asked--
	if p.left == 0 {
		g.done(0)
		g.ask(p.m)
		return
	}
	copy(g.pulls, g.pulls[1:])
	g.pulls[len(g.pulls)-1] = p
}

// over takes the end of a request. But for that of its time, nobody serves it, or the consumer was deleted. It may be there
// again soon, or has to be made again. The lock is held.
func (g *group) over(subject, status string) {
	g.missing = g.missing || status != "408"
	token, err := strconv.ParseUint(strings.TrimPrefix(subject, g.inbox), 36, 64)
	i := slices.IndexFunc(g.pulls, func(p *pull) bool { return p.token == token })
	if err != nil || i < 0 {
		return
	}
	m := g.pulls[i].m
	g.done(i)
	g.ask(m)
}

// pulled takes what answers a request: a message for the group, or the end of the request.
func (g *group) pulled(msg *nats.Msg) {
	if status := msg.Header.Get("Status"); status != "" && len(msg.Data) == 0 {
		if status != "100" {
			g.mu.Lock()
			g.over(msg.Subject, status)
			g.mu.Unlock()
		}
		return
	}
	g.mu.Lock()
	g.served()
	idle := len(g.ring) == 0
	g.mu.Unlock()
	if idle {
		_ = msg.Nak()
		return
	}
	meta, err := msg.Metadata()
	if err != nil {
		return // not a message of the group
	}
	if meta.NumDelivered > 1 {
		g.repeated(msg, meta.Sequence.Stream)
		return
	}
	g.handOut(msg, meta.Sequence.Stream)
}

// repeated takes a message that was pulled before. Whoever did may have handed it out and then died: what was handed out
// stays in the stream until the group's consumer is known to have let go of it, so the stream tells.
func (g *group) repeated(msg *nats.Msg, seq uint64) {
	subject := handedRoot + g.name + "." + strconv.FormatUint(seq, 10) + ".*"
	body := `{"seq":` + strconv.FormatUint(seq, 10) + `,"next_by_subj":"` + subject + `"}`
	g.s.calls.send(&nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + msgsStream, Data: []byte(body)}, func(data []byte, err error) {
		switch found, err := foundMessage(data, err); {
		case err != nil:
			_ = msg.NakWithDelay(shareTick)
		case found:
			_ = msg.Ack()
		default:
			g.handOut(msg, seq)
		}
	})
}

// handOut gives a message to the member whose turn it is. For one above QoS 0 that is a publication to the subject of the
// member, under an id that names the message, whoever it is for: the stream takes it once.
func (g *group) handOut(msg *nats.Msg, seq uint64) {
	g.mu.Lock()
	m := g.turn()
	if m == nil {
		g.mu.Unlock()
		_ = msg.Nak() // the last member has left
		return
	}
	m.out[seq] = true
	if m.feed == nil {
		g.mu.Unlock()
		_ = msg.Ack()
		m.offer(seq, msg)
		return
	}
	m.sending++
	g.mu.Unlock()
	handed := &nats.Msg{
		Subject: handedRoot + g.name + "." + strconv.FormatUint(seq, 10) + "." + m.token,
		Header:  nats.Header{jetstream.MsgIDHeader: {g.name + "." + strconv.FormatUint(seq, 36)}},
		Data:    msg.Data,
	}
	g.s.calls.send(handed, func(data []byte, err error) {
		var duplicate bool
		if err == nil {
			_, duplicate, err = parsePubAck(data)
		}
		if err == nil {
			_ = msg.Ack()
		} else {
			_ = msg.NakWithDelay(shareTick) // whether it is stored is seen when it comes again
		}
		g.mu.Lock()
		m.sending--
		if err != nil || duplicate {
			delete(m.out, seq) // another one's, or perhaps
		}
		g.ask(m)
		g.mu.Unlock()
	})
}

// turn returns the next member that has room, or if none has, because some have left, the next one. The lock is held.
func (g *group) turn() *groupMember {
	n := len(g.ring)
	if n == 0 {
		return nil
	}
	at := g.next % n
	for i := range n {
		if m := g.ring[(g.next+i)%n]; len(m.out) < memberCredit {
			at = (g.next + i) % n
			break
		}
	}
	g.next = (at + 1) % n
	return g.ring[at]
}
